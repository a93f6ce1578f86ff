"""AlterNet's residual unit with attention in place of convolution."""

from typing import Any

import keras

from kerasvit.ops import gelu
from kerasvit.types import Shape, Tensor

from .layer import Block
from .stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("kerasvit")
class AttentionUnit(Block):
    """Normalisation, GELU, convolution, normalisation, attention; with a shortcut.

    There is no activation after the second normalisation and no MLP after the
    attention. In an AlterNet the convolutional unit before this one changes size and
    channels, so that the shortcut is the unchanged input.

    Shape: (batch, H, W, C) → same.

    Args:
        conv_norm: First normalisation layer, named "conv_norm". The names of these
            layers are part of the variables' paths and so of the checkpoint format.
        conv: Convolution, named "conv".
        attention_norm: Second normalisation layer, named "attention_norm".
        attention: Layer that maps feature maps to C channels, named "attention".
        stochastic_depth: Probability of dropping the branch in training, in [0, 1).

    Reference: Park and Kim 2022, arXiv 2202.06709; `AttentionBlockB` in
    xxxnell/how-do-vits-work models/alternet.py.
    """

    def __init__(
        self,
        conv_norm: keras.layers.Layer,
        conv: keras.layers.Layer,
        attention_norm: keras.layers.Layer,
        attention: keras.layers.Layer,
        *,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv_norm = conv_norm
        self.conv = conv
        self.attention_norm = attention_norm
        self.attention = attention
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape: Shape) -> None:
        self.drop = StochasticDepth(
            self.stochastic_depth, name="drop", dtype=self.dtype_policy
        )
        self.conv_norm.build(input_shape)
        self.conv.build(input_shape)
        shape = self.conv.compute_output_shape(input_shape)
        self.attention_norm.build(shape)
        self.attention.build(shape)
        self.drop.build(shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        branch = gelu(self.conv_norm(x))
        branch = self.attention(self.attention_norm(self.conv(branch)))
        return x + self.drop(branch, training=training)
