"""The block of a Swin Transformer."""

import keras

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
