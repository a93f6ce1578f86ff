"""A learned position table that can be resampled."""

import keras
import numpy as np

from .resampling import KERNELS, MOST_CELLS, resample_grid


def check_resampling(kernel, source_grid):
    """Checks the arguments `kernel` and `source_grid`; both may be None."""
    if kernel is not None and kernel not in tuple(KERNELS):
        raise ValueError(
            f"`kernel` must be one of {', '.join(KERNELS)}. Received: {kernel!r}."
        )
    if source_grid is None:
        return
    pair = isinstance(source_grid, (tuple, list)) and len(source_grid) == 2
    if not pair or not all(
        isinstance(side, (int, np.integer)) and side > 0 for side in source_grid
    ):
        raise ValueError(
            "`source_grid` must be (height, width), in patches. Received: "
            f"{source_grid!r}."
        )


def table_grid(rows, *, own_grid, source_grid=None, name="position table"):
    """Returns the grid (height, width) of a table with `rows` patch rows.

    What the caller says wins; else the model's own grid if the counts agree; else a
    square. The count alone cannot tell 4 × 9 from 6 × 6, hence `source_grid`.

    Raises:
        ValueError: The rows fit none of these, or are more than any model has.
    """
    if rows > MOST_CELLS:
        raise ValueError(
            f"The {name} has {rows:,} patch rows; models have at most {MOST_CELLS:,}."
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
        return tuple(own_grid)
    side = round(rows**0.5)
    if side * side != rows:
        raise ValueError(
            f"The {name} has {rows} patch rows: neither the model's "
            f"{own_grid[0]} × {own_grid[1]} grid nor a square. Say what grid it was "
            "made for with `source_grid=(height, width)`, in patches."
        )
    return side, side


@keras.saving.register_keras_serializable("kerasvit")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector to each token by its position in the patch grid.

    Shape: (batch, prefix + H·W, D) → same.

    Args:
        grid: (H, W), patches down and across.
        prefix: How many rows the table has before the grid's, for class and register
            tokens that already stand in the sequence.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1 and appendix D.4.
    """

    def __init__(self, grid: tuple[int, int], *, prefix: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.prefix = prefix

    def build(self, input_shape):
        """Creates the table."""
        length = self.prefix + self.grid[0] * self.grid[1]
        self.table = self.add_weight(
            name="table",
            shape=(1, length, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x):
        return x + keras.ops.cast(self.table, x.dtype)

    def compute_output_shape(self, input_shape):
        """Same as the input."""
        return input_shape

    def resample(
        self, table, *, path=None, source_grid=None, kernel="bicubic_antialias"
    ):
        """Resamples a table of another grid to this layer's.

        Args:
            table: (1, prefix + h·w, D) array. Its prefix rows are kept as they are.
            path: Of the variable; this layer has one only.
            source_grid: (h, w) it was made for; None: this layer's own if the counts
                agree, else square.
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

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "grid": self.grid, "prefix": self.prefix}
