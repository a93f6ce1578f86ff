"""A fixed position table of sines and cosines."""

from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.typing import Shape, Tensor

from .position_embedding import pair
from .table_size import check_table_size


def sincos_table(grid: tuple[int, int], width: int) -> np.ndarray:
    """Returns big_vision's fixed table, (H·W, width), float64.

    Frequencies decrease geometrically from 1 to 1/10000 over width/4 steps; each row is
    sin x, cos x, sin y, cos y, as in `posemb_sincos_2d` of big_vision/models/vit.py.
    """
    y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1)
    steps = width // 4
    frequency = 10_000.0 ** -(np.arange(steps) / max(steps - 1, 1))
    x, y = x * frequency, y * frequency
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


@keras.saving.register_keras_serializable("kerasvit")
class SinCosPositionEmbedding(keras.layers.Layer):
    """Adds sines and cosines of row and column to each token.

    The layer has no variables: it fits any grid, without loading or resampling.

    Shape: (batch, H·W, D) → same.

    Args:
        grid: (H, W), patches down and across.

    Raises:
        ValueError: D is not a multiple of 4.

    Reference: Beyer et al. 2022, arXiv 2205.01580; big_vision/models/vit.py.
    """

    def __init__(self, grid: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)

    def build(self, input_shape: Shape) -> None:
        """Computes the table."""
        width = input_shape[-1]
        if width % 4:
            raise ArgumentError(
                "A sin-cos position table needs a `width` that is a multiple of 4. "
                f"Received: width={width}.",
                "width",
            )
        check_table_size(8 * self.grid[0] * self.grid[1] * width, "image_size", "width")
        self.table = sincos_table(self.grid, width)[None]  # (1, H·W, D)

    def call(self, x: Tensor) -> Tensor:
        return x + keras.ops.convert_to_tensor(self.table, dtype=x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "grid": self.grid}
