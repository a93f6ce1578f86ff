"""The residual unit of the original ResNet, with activation after the sum."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import relu_of_new
from kerasvit.types import Shape, Tensor

from .layer import Block
from .stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("kerasvit")
class PostactUnit(Block):
    """Two or three convolutions with normalisation, and a shortcut.

    A ReLU follows each normalisation; the last ReLU follows the sum with the shortcut.
    The shortcut is the input, or a normalised projection of it if the unit changes size
    or channels.

    Shape: (batch, H, W, C) → (batch, H', W', C'), by the convolutions.

    Args:
        convs: Convolutions, named "conv_0", "conv_1", …; the names are part of the
            variables' paths and so of the checkpoint format.
        norms: As many normalisation layers, named "norm_0", "norm_1", …
        projection: Convolution of the shortcut, named "projection"; None leaves the
            shortcut as it is.
        projection_norm: Its normalisation, named "projection_norm".
        stochastic_depth: Probability of dropping the branch in training, in [0, 1).

    Reference: He et al. 2016, arXiv 1512.03385, figure 5; `ResidualUnit` in
    google-research/vision_transformer vit_jax/models_resnet.py.
    """

    def __init__(
        self,
        convs: list[keras.layers.Layer],
        norms: list[keras.layers.Layer],
        *,
        projection: keras.layers.Layer | None = None,
        projection_norm: keras.layers.Layer | None = None,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.convs = convs
        self.norms = norms
        self.projection = projection
        self.projection_norm = projection_norm
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape: Shape) -> None:
        self.drop = StochasticDepth(
            self.stochastic_depth, name="drop", dtype=self.dtype_policy
        )
        shape = input_shape
        for conv, norm in zip(self.convs, self.norms, strict=True):
            conv.build(shape)
            shape = conv.compute_output_shape(shape)
            norm.build(shape)
        self.drop.build(shape)
        if self.projection is not None:
            self.projection.build(input_shape)
            if self.projection_norm is not None:
                self.projection_norm.build(shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        shortcut = x
        if self.projection is not None:
            shortcut = self.projection(x)
            if self.projection_norm is not None:
                shortcut = self.projection_norm(shortcut)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            if conv is not self.convs[0]:
                x = ops.relu(x)
            x = norm(conv(x))
        x = self.drop(x, training=training)
        dtype = self.compute_dtype  # sublayers may return a wider dtype
        return relu_of_new(ops.cast(shortcut, dtype) + ops.cast(x, dtype))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        for conv in self.convs:
            input_shape = conv.compute_output_shape(input_shape)
        return input_shape
