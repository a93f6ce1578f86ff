"""A convolution without bias, with PyTorch's padding and initialisation."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.backend.channels_last import convolution
from kerasvit.backend.direct_calls import DirectCalls
from kerasvit.backend.linear import product
from kerasvit.backend.reshaping import reshape
from kerasvit.typing import Shape, Tensor

# Uniform in ±1 / √fan_in, which has the variance 1 / (3 · fan_in), as
# `reset_parameters` of torch.nn.Conv2d and torch.nn.Linear.
TORCH_UNIFORM = {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"}


@keras.saving.register_keras_serializable("kerasvit")
class Conv(DirectCalls):
    """Convolution without bias, with equal zero padding on both sides.

    Every border gets k // 2 zeros. With a stride, Keras's padding "same" may put one
    more zero at the end than at the beginning.

    Shape: (batch, H, W, C) → (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters).

    Args:
        filters: Number of output channels.
        kernel_size: k, side of the square kernel in pixels; odd.
        strides: Stride in pixels.

    Raises:
        ValueError: `kernel_size` is even.

    Reference: torch.nn.Conv2d with `padding=kernel_size // 2` and `bias=False`.
    """

    def __init__(
        self, filters: int, kernel_size: int, *, strides: int = 1, **kwargs: Any
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

    def build(self, input_shape: Shape) -> None:
        """Creates the kernel."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=keras.initializers.VarianceScaling(**TORCH_UNIFORM),
        )

    def call(self, x: Tensor) -> Tensor:
        kernel = ops.convert_to_tensor(self.kernel)
        if self.kernel_size == 1:
            return pointwise(x, kernel, self.strides)
        return convolution(x, kernel, self.strides, self.kernel_size // 2)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters)."""
        batch, *sides, _ = input_shape
        return (
            batch,
            *(side and -(-side // self.strides) for side in sides),
            self.filters,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }
        return {**super().get_config(), **config}


def pointwise(x: Tensor, kernel: Tensor, strides: int = 1) -> Tensor:
    """Computes a convolution with a 1 × 1 kernel as one matrix product.

    On PyTorch Keras's convolution would copy the maps to channels first and back.

    Args:
        x: Feature maps, (batch, H, W, C).
        kernel: (1, 1, C, filters).
        strides: Stride in pixels.

    Returns:
        Feature maps, (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters).
    """
    if strides > 1 and not _takes_rows():
        return convolution(x, kernel, strides, 0)
    if strides > 1:
        x = x[:, ::strides, ::strides]
    rows = product(reshape(x, (-1, x.shape[-1])), kernel[0, 0])
    return reshape(rows, (*ops.shape(x)[:-1], kernel.shape[-1]))


def _takes_rows() -> bool:
    """Returns whether every other pixel is best read for a matrix product.

    BiT's forward pass takes 0.92 of the time on TensorFlow with a convolution, and 1.01
    on JAX on a CPU. On a GPU, XLA 0.11 fails at the product of BiT-R50x1.
    """
    if keras.backend.backend() == "jax":
        return keras.distribution.list_devices()[0].startswith("cpu")
    return keras.backend.backend() == "torch"
