"""A convolution without bias, with PyTorch's padding and initialisation."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.ops import convolution
from kerasvit.types import Shape, Tensor

from .layer import Layer

# Uniform in ±1 / √fan_in, which has the variance 1 / (3 · fan_in), as
# `reset_parameters` of torch.nn.Conv2d and torch.nn.Linear.
TORCH_UNIFORM = {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"}


@keras.saving.register_keras_serializable("kerasvit")
class Conv(Layer):
    """Convolution without bias, with equal zero padding on both sides.

    Every border gets k // 2 zeros. With a stride, Keras's padding "same" may put one
    more zero at the end than at the beginning.

    Shape: (batch, H, W, C) → (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters).

    Args:
        filters: Number of output channels.
        kernel_size: k, side of the square kernel in pixels; odd.
        strides: Stride in pixels.
        groups: n, a divisor of the input channels and of `filters`: each n-th of the
            filters sees its own n-th of the channels.

    Raises:
        ValueError: `kernel_size` is even, or `groups` is no divisor.

    Reference: torch.nn.Conv2d with `padding=kernel_size // 2` and `bias=False`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        *,
        strides: int = 1,
        groups: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size % 2 == 0:
            raise ArgumentError(
                "`kernel_size` must be odd, so that it has a centre. Received: "
                f"kernel_size={kernel_size}.",
                "kernel_size",
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.groups = groups

    def build(self, input_shape: Shape) -> None:
        channels, groups = input_shape[-1], self.groups
        if channels % groups or self.filters % groups:
            raise ArgumentError(
                "`groups` must divide the input channels and the filters. Received: "
                f"groups={groups} for {channels} channels, {self.filters} filters.",
                "groups",
            )
        size = self.kernel_size
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, size, channels // groups, self.filters),
            initializer=keras.initializers.VarianceScaling(**TORCH_UNIFORM),
        )

    def call(self, x: Tensor) -> Tensor:
        kernel = ops.convert_to_tensor(self.kernel)
        border = self.kernel_size // 2
        return self.operate(
            lambda x, kernel: convolution(x, kernel, self.strides, border),
            inputs=x,
            kernel=kernel,
        )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, _ = input_shape
        return (
            batch,
            *(side and -(-side // self.strides) for side in sides),
            self.filters,
        )
