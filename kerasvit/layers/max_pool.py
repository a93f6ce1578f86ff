"""Max-pooling with PyTorch's padding."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import max_pool
from kerasvit.types import Shape, Tensor

from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class MaxPool(Layer):
    """Max-pooling of stride 2 with PyTorch's padding.

    The k × k windows are centred on the pixels with even row and column. Keras's
    padding "same" centres them one pixel further on maps of an even size.

    Shape: (batch, H, W, C) → (batch, ⌈H / 2⌉, ⌈W / 2⌉, C).

    Args:
        pool_size: k, side of the window in pixels; odd.
        padding_value: Value of the k // 2 pixels around the map; None: they take no
            part in the maximum.

    Reference: torch.nn.MaxPool2d with `stride=2` and `padding=kernel_size // 2`.
    """

    def __init__(
        self, pool_size: int = 3, *, padding_value: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pool_size = pool_size
        self.padding_value = padding_value

    def call(self, x: Tensor) -> Tensor:
        border = (self.pool_size // 2,) * 2
        value = self.padding_value
        if value is None:
            value = float("-inf")  # not zero: the values may all be negative
        x = ops.pad(x, ((0, 0), border, border, (0, 0)), constant_values=value)
        return max_pool(x, self.pool_size, strides=2)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, channels = input_shape
        return batch, *(side and -(-side // 2) for side in sides), channels
