"""The block of a Swin Transformer."""

import keras

from .encoder_block import EncoderBlock


@keras.saving.register_keras_serializable("kerasvit")
class SwinBlock(EncoderBlock):
    """An encoder block on a map with (shifted) window attention.

    Every other block of a stage has shifted windows; its attention says so.

    Shape: (batch, H, W, D) → same.

    Args:
        attention: `WindowAttention`, named "attention".
        mlp, epsilon, stochastic_depth: As `EncoderBlock`.

    Reference: Liu et al. 2021 (Swin), arXiv 2103.14030, equation 3.
    """

    @property
    def grid(self):
        """(H, W) of the map."""
        return self.attention.grid

    def resample(self, array, *, path, source_grid=None, kernel="geometric_linear"):
        """Resamples a table of position biases to this block's windows."""
        if not path.endswith("/position_bias"):
            return array
        return self.attention.resample(array, source_grid=source_grid, kernel=kernel)
