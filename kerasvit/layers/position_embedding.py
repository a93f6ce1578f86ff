"""A learned position table that can be resampled."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import one_of, whole_patches
from kerasvit.types import PatchSize, Shape, Tensor

from .layer import OwnLayer
from .resampling import KERNELS, MAX_CELLS, resample_grid, resample_tensor

# For tables of absolute positions, also on a grid that is known only in the graph.
POSITION_KERNELS = tuple(kernel for kernel in KERNELS if kernel != "geometric_linear")


def absolute(kernel: str) -> str:
    """Returns the kernel of absolute positions; timm's where its other one is given.

    "geometric_linear" is for tables of relative positions, which have a centre. timm
    resamples those of absolute positions by "bicubic_antialias".
    """
    return kernel if kernel in POSITION_KERNELS else "bicubic_antialias"


def pair(grid: Any) -> tuple[int, int]:
    """Returns a grid, given as a list or tuple, as (height, width)."""
    height, width = grid
    return height, width


def grid_of(image: Tensor, patch_size: PatchSize) -> tuple[Any, Any]:
    """Returns the (height, width) of an image in whole patches.

    They are integers, or tensors in a graph of TensorFlow with unknown sides.
    """
    return whole_patches(ops.shape(image)[1:3], patch_size)


def check_resampling(kernel: Any, source_grid: Any) -> None:
    """Checks the arguments `kernel` and `source_grid`; both may be None."""
    if kernel is not None:
        one_of("kernel", kernel, tuple(KERNELS))
    if source_grid is None:
        return
    two = isinstance(source_grid, (tuple, list)) and len(source_grid) == 2
    if not two or not all(
        isinstance(side, (int, np.integer)) and side > 0 for side in source_grid
    ):
        raise ValueError(
            "`source_grid` must be (height, width), in patches. Received: "
            f"{source_grid!r}."
        )


def table_grid(
    rows: int,
    *,
    own_grid: tuple[int, int],
    source_grid: tuple[int, int] | None = None,
    name: str = "position table",
) -> tuple[int, int]:
    """Returns the grid (height, width) of a table with `rows` patch rows.

    It is `source_grid` if given; else `own_grid`, the model's, if it has as many cells;
    else a square. `source_grid` is needed because 4 × 9 and 6 × 6 have the same number
    of cells.

    Raises:
        ValueError: `rows` fits none of these, or is more than any model has.
    """
    if rows > MAX_CELLS:
        raise ValueError(
            f"The {name} has {rows:,} patch rows; models have at most {MAX_CELLS:,}."
        )
    if source_grid is not None:
        height, width = source_grid
        if height * width != rows:
            raise ValueError(
                f"`source_grid` must have as many cells as the {name} has patch rows, "
                f"{rows}. Received: {height} × {width} = {height * width}."
            )
        return height, width
    if own_grid[0] * own_grid[1] == rows:
        return pair(own_grid)
    side = round(rows**0.5)
    if side * side != rows:
        raise ValueError(
            f"The {name} has {rows} patch rows: neither the model's "
            f"{own_grid[0]} × {own_grid[1]} grid nor a square. Pass the grid of the "
            "table as `source_grid=(height, width)`, in patches."
        )
    return side, side


@keras.saving.register_keras_serializable("kerasvit")
class PositionEmbedding(OwnLayer, keras.layers.Layer):
    """Adds a learned vector to each token by its position in the patch grid.

    Shape: (batch, prefix + H·W, D) → same. With `patch_size`: (batch, prefix + h·w, D)
    and an image (batch, h·P, w·P, channels), whose patches the tokens are → the shape
    of the tokens. The table of H × W patches is resampled to h × w in each call, with
    gradients: `resample` gives the same rows.

    Args:
        grid: (H, W), patches down and across.
        prefix: Number of rows of the table before those of the grid, for class and
            register tokens that are already in the sequence.
        patch_size: P, side of a patch of the image, or both, for images of any size.
            None: all images have H × W patches.
        kernel: Kernel to resample with, one of `kerasvit.layers.resampling.KERNELS`;
            see `absolute`.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1 and appendix D.4.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        prefix: int = 0,
        patch_size: PatchSize | None = None,
        kernel: str = "bicubic_antialias",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)
        self.prefix = prefix
        self.patch_size = patch_size
        self.resampling_kernel = absolute(kernel)

    def build(self, input_shape: Shape) -> None:
        length = self.prefix + self.grid[0] * self.grid[1]
        self.table = self.add_weight(
            name="table",
            shape=(1, length, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,  # it is resampled in the variable's precision
        )

    def call(self, x: Tensor, image: Tensor | None = None) -> Tensor:
        table = ops.convert_to_tensor(self.table)
        if self.patch_size is not None:
            table = self._resampled(table, grid_of(image, self.patch_size))
        return x + ops.cast(table, x.dtype)

    def _resampled(self, table: Tensor, grid: tuple[Any, Any]) -> Tensor:
        """Returns the table (1, prefix + h·w, D) of a grid (h, w)."""
        if all(isinstance(side, int) for side in grid) and grid == self.grid:
            return table
        exact = keras.backend.result_type(table.dtype, "float32")
        width = table.shape[-1]
        cells = ops.reshape(table[0, self.prefix :], (*self.grid, width))
        cells = resample_tensor(ops.cast(cells, exact), grid, self.resampling_kernel)
        cells = ops.cast(ops.reshape(cells, (-1, width)), table.dtype)
        return ops.concatenate([table[0, : self.prefix], cells])[None]

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on the grid."""
        return {self.table.path: self.resample}

    def resample(
        self,
        table: np.ndarray,
        *,
        source_grid: tuple[int, int] | None = None,
        kernel: str = "bicubic_antialias",
    ) -> np.ndarray:
        """Resamples a table of another grid to this layer's grid.

        Args:
            table: (1, prefix + h·w, D) array. Its prefix rows do not change.
            source_grid: (h, w) of `table`; None: this layer's grid if the number of
                cells is the same, else a square.
            kernel: One of `kerasvit.layers.resampling.KERNELS`; see `absolute`.

        Returns:
            (1, prefix + H·W, D) array of the same dtype.

        Raises:
            ValueError: The rows do not fill the source grid.
        """
        rows = table.shape[1] - self.prefix
        source = table_grid(rows, own_grid=self.grid, source_grid=source_grid)
        if source == self.grid:
            return table
        prefix, cells = np.split(table[0], [self.prefix])
        cells = resample_grid(cells.reshape(*source, -1), self.grid, absolute(kernel))
        return np.concatenate([prefix, cells.reshape(-1, table.shape[-1])])[None]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "kernel": self.resampling_kernel}
