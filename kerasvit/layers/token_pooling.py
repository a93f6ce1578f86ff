"""Pools the map of the patches, beside which other tokens stand."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import depthwise_convolution
from kerasvit.types import Shape, Tensor

from .conv import TORCH_UNIFORM
from .dense import dense_in
from .layer import OwnLayer, Roundable


@keras.saving.register_keras_serializable("kerasvit")
class TokenPooling(OwnLayer, Roundable, keras.layers.Layer):
    """Halves the map of the patches, and doubles the channels of all tokens.

    A depthwise 3 × 3 convolution of stride 2, with zeros around the map, makes two
    channels of each one. A dense layer does so for the tokens before the patches.

    Shape: tokens (batch, k + H·W, C) and a map (batch, H, W, …), which tells H and W →
    tokens (batch, k + ⌈H/2⌉·⌈W/2⌉, 2C), and those of the patches as a map (batch,
    ⌈H/2⌉, ⌈W/2⌉, 2C).

    Args:
        prefix: k, number of tokens before those of the patches, ≥ 1.

    Reference: Heo et al. 2021, arXiv 2103.16302, section 3.2; `Pooling` in
    timm/models/pit.py.
    """

    def __init__(self, *, prefix: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.prefix = prefix

    def build(self, x_shape: Shape, cells_shape: Shape) -> None:
        """Notes the attribute `grid` of the result, (⌈H/2⌉, ⌈W/2⌉), if it is known."""
        channels, start = x_shape[-1], keras.initializers.VarianceScaling
        sides = self._halved(cells_shape)
        if None not in sides:
            self.grid = sides
        self.kernel = self.add_weight(
            name="kernel",
            shape=(3, 3, channels, 2),
            # 3 × 3 inputs of each filter, of which Keras counts all channels.
            initializer=start(**{**TORCH_UNIFORM, "scale": channels / 3}),
        )
        self.bias = self.add_weight(
            name="bias", shape=(2 * channels,), initializer="zeros"
        )
        self.dense = dense_in(self, "dense", channels, 2 * channels)

    def call(self, x: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        height, width = ops.shape(cells)[1:3]
        channels = x.shape[-1]
        tokens = ops.reshape(x[:, : self.prefix], (-1, channels))
        tokens = ops.reshape(self.dense(tokens), (-1, self.prefix, 2 * channels))
        x = ops.reshape(x[:, self.prefix :], (-1, height, width, channels))
        kernel = ops.convert_to_tensor(self.kernel)
        x = self.operate(
            lambda x, kernel: depthwise_convolution(x, kernel, strides=2, border=1),
            inputs=x,
            depthwise_kernel=kernel,
        )
        x = x + self.bias
        patches = ops.reshape(x, (ops.shape(x)[0], -1, 2 * channels))
        return ops.concatenate([tokens, patches], axis=1), x

    def compute_output_shape(  # type: ignore[override]  # it has two inputs
        self, x_shape: Shape, cells_shape: Shape
    ) -> tuple[Shape, Shape]:
        """Returns the shapes of tokens and map."""
        batch, _, channels = x_shape
        height, width = self._halved(cells_shape)
        known = None not in (height, width)
        count = self.prefix + height * width if known else None
        return (batch, count, 2 * channels), (batch, height, width, 2 * channels)

    @staticmethod
    def _halved(cells_shape: Shape) -> tuple[Any, Any]:
        height, width = (side and -(-side // 2) for side in cells_shape[1:3])
        return height, width
