"""Learned biases of attention for relative positions of patches and a class token."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import whole_patches
from kerasvit.types import PatchSize, Shape, Tensor

from .layer import OwnLayer, check_table_size
from .position_embedding import grid_of, pair
from .resampling import MAX_CELLS, resample_grid, resample_tensor

CLASS_ROWS = 3  # class token to patches, patches to class token, class token to itself


@keras.saving.register_keras_serializable("kerasvit")
class RelativePositionBias(OwnLayer, keras.layers.Layer):
    """Biases of attention scores, learned for each head and each relative position.

    The table has a row for each of the (2H - 1)(2W - 1) offsets from a key's patch to a
    query's, and three more: for the class token as query, as key, and as both.

    Shape: image (batch, h·P, w·P, channels) → (1, heads, N, N), N = 1 + h·w, from
    queries to keys. Only its size counts. Without `patch_size` h × w is H × W; with it
    the table is resampled in each call, with gradients: `resample` gives the same rows.

    Args:
        num_heads: Number of heads.
        grid: (H, W), patches down and across.
        patch_size: P, side of a patch of the image, or both, for images of any size.
            None: all images have H × W patches.
        resampling_kernel: Kernel to resample with, one of
            `kerasvit.layers.resampling.KERNELS`. The rows of the class token do not
            change.

    Reference: Bao et al. 2021 (BEiT), arXiv 2106.08254; `RelativePositionBias` in
    timm/models/beit.py.
    """

    def __init__(
        self,
        num_heads: int,
        grid: tuple[int, int],
        *,
        patch_size: PatchSize | None = None,
        resampling_kernel: str = "geometric_linear",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.grid = pair(grid)
        self.patch_size = patch_size
        self.resampling_kernel = resampling_kernel

    def build(self, input_shape: Shape) -> None:
        height, width = self.grid
        check_table_size(4 * (1 + height * width) ** 2, "image_size", "patch_size")
        self.biases = self.add_weight(
            name="table",
            shape=(rows_of_grid(self.grid), self.num_heads),
            initializer="zeros",
            autocast=False,  # it is added to scores that are float32 at least
        )

    def compute_output_spec(self, image: Tensor) -> keras.KerasTensor:
        """Returns the shape and the type of the result."""
        height, width = self.grid
        if self.patch_size is not None:
            height, width = whole_patches(image.shape[1:3], self.patch_size)
        tokens = None if None in (height, width) else 1 + height * width
        shape = (1, self.num_heads, tokens, tokens)
        return keras.KerasTensor(shape, self.variable_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns (1, heads, N, N)."""
        return self.compute_output_spec(keras.KerasTensor(input_shape)).shape

    def call(self, image: Tensor | None = None) -> Tensor:
        return self.scores(image)

    def scores(self, image: Tensor | None = None) -> Tensor:
        """Returns the biases of all pairs of tokens, (1, heads, N, N)."""
        grid = self.grid
        if self.patch_size is not None:
            grid = grid_of(image, self.patch_size)
        # Transposed first: TensorFlow's gradient of rows of a variable is sparse.
        table = ops.transpose(self.biases)
        cells, tokens = table[:, :-CLASS_ROWS], table[:, -CLASS_ROWS:]
        cells = ops.reshape(cells, (self.num_heads, *offsets(self.grid)))
        if self.patch_size is not None:
            cells = _resampled(cells, offsets(grid), self.resampling_kernel)
        cells = _of_pairs(cells, grid)
        patches = grid[0] * grid[1]
        as_query, as_key, as_both = ops.split(tokens[..., None], CLASS_ROWS, axis=1)
        as_query = ops.broadcast_to(as_query, (self.num_heads, 1, patches))
        as_key = ops.broadcast_to(as_key, (self.num_heads, patches, 1))
        first = ops.concatenate([as_both, as_query], axis=2)
        others = ops.concatenate([as_key, cells], axis=2)
        return ops.concatenate([first, others], axis=1)[None]

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on the grid."""
        return {self.biases.path: self.resample}

    def resample(
        self,
        table: np.ndarray,
        *,
        source_grid: tuple[int, int] | None = None,
        kernel: str = "geometric_linear",
    ) -> np.ndarray:
        """Resamples a table of another grid to this layer's grid.

        Args:
            table: ((2h - 1)(2w - 1) + 3, heads) array. Its last rows do not change.
            source_grid: (h, w) of `table`; None: this layer's grid if the number of
                rows is the same, else a square.
            kernel: One of `kerasvit.layers.resampling.KERNELS`.

        Returns:
            Array of this layer's shape, of the same dtype.

        Raises:
            ValueError: No such grid has this number of rows.
        """
        source = _source_grid(len(table), source_grid, self.grid)
        cells, tokens = np.split(table, [-CLASS_ROWS])
        cells = cells.reshape(*offsets(source), -1)
        cells = resample_grid(cells, offsets(self.grid), kernel)
        return np.concatenate([cells.reshape(-1, table.shape[-1]), tokens])


def offsets(grid: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the numbers of offsets between two patches, down and across."""
    height, width = grid
    return 2 * height - 1, 2 * width - 1


def rows_of_grid(grid: tuple[int, int]) -> int:
    """Returns the number of rows of the table of a grid."""
    down, across = offsets(grid)
    return down * across + CLASS_ROWS


def square_grid(rows: int) -> tuple[int, int] | None:
    """Returns the square grid whose table has this number of rows, or None."""
    side = (round(max(rows - CLASS_ROWS, 0) ** 0.5) + 1) // 2
    return (side, side) if rows_of_grid((side, side)) == rows else None


def _resampled(cells: Tensor, size: tuple[Any, Any], kernel: str) -> Tensor:
    """Resamples (heads, 2H - 1, 2W - 1) to the offsets of another grid."""
    exact = keras.backend.result_type(cells.dtype, "float32")
    grid = ops.cast(ops.transpose(cells, (1, 2, 0)), exact)
    grid = resample_tensor(grid, size, kernel)
    return ops.cast(ops.transpose(grid, (2, 0, 1)), cells.dtype)


def _of_pairs(cells: Tensor, grid: tuple[Any, Any]) -> Tensor:
    """Returns the biases of all pairs of patches, (heads, h·w, h·w).

    One side after the other: an index of all pairs would be a large constant.
    """
    heads, (height, width) = cells.shape[0], grid
    for axis, side in ((1, height), (3, width)):
        places = ops.arange(side)
        cells = ops.take(cells, places[:, None] - places + side - 1, axis=axis)
    pairs = ops.transpose(cells, (0, 1, 3, 2, 4))  # (heads, h, w, h, w)
    return ops.reshape(pairs, (heads, height * width, height * width))


def _source_grid(
    rows: int, given: tuple[int, int] | None, own: tuple[int, int]
) -> tuple[int, int]:
    """Returns (h, w) of the grid whose table has `rows`."""
    if rows > 4 * MAX_CELLS:
        raise ValueError(
            f"The table has {rows:,} rows; models have at most {4 * MAX_CELLS:,}."
        )
    for grid in (given, own, square_grid(rows)):
        if grid is not None and rows_of_grid(grid) == rows:
            return grid
    raise ValueError(
        f"The table of position biases has {rows} rows, which no grid of {given} "
        f"patches has, nor this layer's of {own[0]} × {own[1]}, nor a square one. Pass "
        "the grid of the table as `source_grid=(height, width)`, in patches."
    )
