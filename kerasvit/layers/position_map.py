"""A learned map of positions that can be resampled."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Shape, Tensor

from .layer import OwnLayer
from .position_embedding import absolute, pair
from .resampling import resample_grid, resample_tensor


@keras.saving.register_keras_serializable("kerasvit")
class PositionMap(OwnLayer, keras.layers.Layer):
    """Adds a learned vector to each cell of a map by its position.

    The table is a map, too, so that its grid is known; `PositionEmbedding` has one row
    for each token. For a map of another size than the table's it is resampled in the
    call, with gradients, as `resample` does.

    Shape: (batch, h, w, D) → same.

    Args:
        grid: (H, W) of the table, in cells.
        kernel: Kernel to resample with in the call, one of
            `kerasvit.layers.resampling.KERNELS`; see `absolute`.

    Reference: Heo et al. 2021, arXiv 2103.16302; `pos_embed` in timm/models/pit.py.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        kernel: str = "bicubic_antialias",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)
        self.resampling_kernel = absolute(kernel)

    def build(self, input_shape: Shape) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(1, *self.grid, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,  # it is resampled in the variable's precision
        )

    def call(self, x: Tensor) -> Tensor:
        table, grid = ops.convert_to_tensor(self.table), ops.shape(x)[1:3]
        known = all(isinstance(side, int) for side in grid)
        if not known or tuple(grid) != self.grid:
            exact = keras.backend.result_type(table.dtype, "float32")
            cells = ops.cast(table[0], exact)
            table = resample_tensor(cells, grid, self.resampling_kernel)[None]
        return x + ops.cast(table, x.dtype)

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on the grid."""
        return {self.table.path: self.resample}

    def resample(
        self, table: np.ndarray, *, kernel: str = "bicubic_antialias", **of_rows: Any
    ) -> np.ndarray:
        """Resamples a table of another grid to this layer's grid.

        Args:
            table: (1, h, w, D) array.
            kernel: One of `kerasvit.layers.resampling.KERNELS`; see `absolute`.
            **of_rows: Not used; arguments of `PositionEmbedding.resample`.

        Returns:
            (1, H, W, D) array of the same dtype.
        """
        return resample_grid(table[0], self.grid, absolute(kernel))[None]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "kernel": self.resampling_kernel}
