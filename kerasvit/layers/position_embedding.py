"""A learned position table that can be resampled."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from kerasvit.typing import Shape, Tensor

from .resampling import KERNELS, MAX_CELLS, resample_grid


def pair(grid: Any) -> tuple[int, int]:
    """Returns a grid, given as a list or tuple, as (height, width)."""
    height, width = grid
    return height, width


def check_resampling(kernel: Any, source_grid: Any) -> None:
    """Checks the arguments `kernel` and `source_grid`; both may be None."""
    if kernel is not None and kernel not in tuple(KERNELS):
        raise ValueError(
            f"`kernel` must be one of {', '.join(KERNELS)}. Received: {kernel!r}."
        )
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
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector to each token by its position in the patch grid.

    Shape: (batch, prefix + H·W, D) → same.

    Args:
        grid: (H, W), patches down and across.
        prefix: Number of rows of the table before those of the grid, for class and
            register tokens that are already in the sequence.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1 and appendix D.4.
    """

    def __init__(
        self, grid: tuple[int, int], *, prefix: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)
        self.prefix = prefix

    def build(self, input_shape: Shape) -> None:
        """Creates the table."""
        length = self.prefix + self.grid[0] * self.grid[1]
        self.table = self.add_weight(
            name="table",
            shape=(1, length, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x: Tensor) -> Tensor:
        return x + keras.ops.cast(self.table, x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the input."""
        return input_shape

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
            kernel: One of `kerasvit.layers.resampling.KERNELS`.

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
        cells = resample_grid(cells.reshape(*source, -1), self.grid, kernel)
        return np.concatenate([prefix, cells.reshape(-1, table.shape[-1])])[None]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "grid": self.grid, "prefix": self.prefix}
