"""A convolution with weight standardisation."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.ops import convolution, standardized
from kerasvit.types import Shape, Tensor

from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class StandardizedConv(Layer):
    """Convolution without bias, with weight standardisation of the kernel.

    From each filter, over its height, width and input channels, the mean is subtracted,
    and the result is divided by the standard deviation. `kernel` contains the raw
    values, (h, w, in, out). Gradients flow through the standardisation.

    Shape: (batch, H, W, C) → (batch, H', W', filters).

    Args:
        filters: Number of output channels.
        kernel_size: Side of the square kernel in pixels.
        strides: Stride in pixels.
        padding: "valid"; "same", as TensorFlow and XLA pad, with a stride of 2 maybe
            one more zero at the end; or an integer, the zeros at each of the four
            borders.
        epsilon: Small constant added to the variance: 1e-10 in big_transfer, 1e-8 in
            timm.
        add_to_deviation: Whether to add `epsilon` to the standard deviation instead, as
            in the hybrids of vit_jax, with 1e-5.

    Raises:
        ValueError: `padding` is none of the three.

    Reference: Qiao et al. 2019, arXiv 1903.10520; `StdConv2d` in
    google-research/big_transfer bit_pytorch/models.py and
    google-research/vision_transformer vit_jax/models_resnet.py.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        *,
        strides: int = 1,
        padding: str | int = "valid",
        epsilon: float = 1e-10,
        add_to_deviation: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        number = isinstance(padding, int) and padding >= 0
        if padding not in ("valid", "same") and not number:
            raise ArgumentError(
                '`padding` must be "valid", "same" or a number of pixels. Received: '
                f"{padding!r}.",
                "padding",
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.epsilon = epsilon
        self.add_to_deviation = add_to_deviation

    def build(self, input_shape: Shape) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=keras.initializers.HeNormal(),
            # bfloat16 would round the raw values before their mean is subtracted.
            autocast=False,
        )

    def call(self, x: Tensor) -> Tensor:
        kernel = ops.cast(self.standardized_kernel(), x.dtype)
        return self.operate(self._convolved, inputs=x, kernel=kernel)

    def _convolved(self, x: Tensor, kernel: Tensor) -> Tensor:
        border = 0 if self.padding == "valid" else self.padding
        centred = self.strides == 1 and self.kernel_size % 2
        if border == "same" and (centred or self.kernel_size == 1):
            border = self.kernel_size // 2
        if isinstance(border, str):  # the zeros depend on the size of the map
            return ops.conv(
                x,
                kernel,
                strides=self.strides,
                padding="same",
                data_format="channels_last",
            )
        return convolution(x, kernel, self.strides, border)

    def standardized_kernel(self) -> Tensor:
        """Returns the standardised kernel in the variables' dtype."""
        kernel = ops.convert_to_tensor(self.kernel)
        if not self.add_to_deviation:
            return standardized(kernel, self.epsilon)
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        return kernel / (ops.sqrt(variance) + self.epsilon)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, _ = input_shape
        return batch, *(self._length(side) for side in sides), self.filters

    def _length(self, side: int | None) -> int | None:
        if side is None:
            return None
        if self.padding == "same":
            return -(-side // self.strides)
        border = 2 * self.padding if isinstance(self.padding, int) else 0
        return (side + border - self.kernel_size) // self.strides + 1
