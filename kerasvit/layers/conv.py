"""A convolution without bias, with PyTorch's padding and initialisation."""

import keras
from keras import ops

from kerasvit.arguments import ArgumentError

# Uniform within ±1 / √(inputs of an output), of variance 1 / (3 · inputs):
# `reset_parameters` of torch.nn.Conv2d and torch.nn.Linear.
TORCH_UNIFORM = {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"}


@keras.saving.register_keras_serializable("kerasvit")
class Conv(keras.layers.Layer):
    """Convolution without bias, with equal zero padding on both sides.

    Every border gets k // 2 zeros, also with a stride, where Keras's "same" puts one
    more at the end.

    Shape: (batch, H, W, C) → (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters).

    Args:
        filters: Channels of the result.
        kernel_size: k, edge of the square kernel in pixels; odd.
        strides: Pixels between two applications.

    Raises:
        ValueError: `kernel_size` is even.

    Reference: torch.nn.Conv2d with `padding=kernel_size // 2` and `bias=False`.
    """

    def __init__(self, filters: int, kernel_size: int, *, strides: int = 1, **kwargs):
        super().__init__(**kwargs)
        if kernel_size % 2 == 0:
            raise ArgumentError(
                "`kernel_size` must be odd, to have a middle. Received: "
                f"kernel_size={kernel_size}.",
                "kernel_size",
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides

    def build(self, input_shape):
        """Creates the kernel."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=keras.initializers.VarianceScaling(**TORCH_UNIFORM),
        )

    def call(self, x):
        if self.kernel_size == 1:
            return pointwise(x, self.kernel, self.strides)
        padding = "same"
        if self.strides > 1:
            border = (self.kernel_size // 2,) * 2
            x = ops.pad(x, ((0, 0), border, border, (0, 0)))
            padding = "valid"
        return ops.conv(
            x,
            self.kernel,
            strides=self.strides,
            padding=padding,
            data_format="channels_last",
        )

    def compute_output_shape(self, input_shape):
        """(batch, H, W, C) → (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters)."""
        batch, *sides, _ = input_shape
        return (
            batch,
            *(side and -(-side // self.strides) for side in sides),
            self.filters,
        )

    def get_config(self):
        """The constructor's arguments."""
        config = {
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }
        return {**super().get_config(), **config}


def pointwise(x, kernel, strides=1):
    """Convolution with a 1 × 1 kernel, as one matrix product.

    Around a convolution of PyTorch's, Keras copies the maps to channels first and back.

    Args:
        x: Maps, (batch, H, W, C).
        kernel: (1, 1, C, filters).
        strides: Pixels between two applications.

    Returns:
        Maps, (batch, ⌈H / strides⌉, ⌈W / strides⌉, filters).
    """
    if strides > 1:
        x = x[:, ::strides, ::strides]
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel[0, 0])
    return ops.reshape(rows, (*ops.shape(x)[:-1], kernel.shape[-1]))
