"""The residual unit of a pre-activation ResNet."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import relu_of_new
from kerasvit.types import Shape, Tensor

from .batch_norm import BatchNormalization
from .group_norm import GroupNorm
from .layer import Block
from .stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("kerasvit")
class PreactUnit(Block):
    """Two or three times normalisation, ReLU and convolution, and a shortcut.

    The shortcut is the unchanged input; if the unit changes size or channels, it is a
    projection of the input after the first normalisation and ReLU.

    Shape: (batch, H, W, C) → (batch, H', W', C'), by the convolutions.

    Args:
        norms: Normalisation layers, named "norm_0", "norm_1", …; the names are part of
            the variables' paths and so of the checkpoint format.
        convs: As many convolutions, named "conv_0", "conv_1", …
        projection: Convolution of the shortcut, named "projection"; None leaves the
            shortcut as it is.
        stochastic_depth: Probability of dropping the branch in training, in [0, 1).

    Reference: He et al. 2016, arXiv 1603.05027, figure 4e; `PreActBottleneck` in
    google-research/big_transfer bit_pytorch/models.py.
    """

    def __init__(
        self,
        norms: list[keras.layers.Layer],
        convs: list[keras.layers.Layer],
        *,
        projection: keras.layers.Layer | None = None,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.norms = norms
        self.convs = convs
        self.projection = projection
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape: Shape) -> None:
        self.drop = StochasticDepth(
            self.stochastic_depth, name="drop", dtype=self.dtype_policy
        )
        if self.projection is not None:
            self.projection.build(input_shape)
        shape = input_shape
        for norm, conv in zip(self.norms, self.convs, strict=True):
            norm.build(shape)
            conv.build(shape)
            shape = conv.compute_output_shape(shape)
        self.drop.build(shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        shortcut = x
        for i, (norm, conv) in enumerate(zip(self.norms, self.convs, strict=True)):
            x = norm(x)
            own = isinstance(norm, GroupNorm | BatchNormalization)
            x = relu_of_new(x) if own else ops.relu(x)  # others may not copy
            if i == 0 and self.projection is not None:
                shortcut = self.projection(x)
            x = conv(x)
        branch = self.drop(x, training=training)
        return ops.cast(shortcut, branch.dtype) + branch  # parts may compute wider

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        for conv in self.convs:
            input_shape = conv.compute_output_shape(input_shape)
        return input_shape
