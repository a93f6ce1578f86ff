"""The block of a Swin Transformer."""

import keras
import numpy as np

from .encoder_block import EncoderBlock


@keras.saving.register_keras_serializable("kerasvit")
class SwinBlock(EncoderBlock):
    """An encoder block on a map with (shifted) window attention.

    Every second block of a stage has shifted windows, by its attention's `shifted`.

    Shape: (batch, H, W, D) → same.

    Args:
        attention: `WindowAttention`, named "attention".
        mlp, epsilon, stochastic_depth: As for `EncoderBlock`.

    Reference: Liu et al. 2021 (Swin), arXiv 2103.14030, equation 3.
    """

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the map, in cells."""
        return self.attention.grid

    def resample(
        self,
        array: np.ndarray,
        *,
        path: str,
        source_grid: tuple[int, int] | None = None,
        kernel: str = "geometric_linear",
    ) -> np.ndarray:
        """Resamples a table of position biases to this block's windows."""
        if not path.endswith("/position_bias"):
            return array
        return self.attention.resample(array, source_grid=source_grid, kernel=kernel)
