"""A convolution with weight standardisation."""

import keras
from keras import ops

from kerasvit.arguments import ArgumentError

from .conv import pointwise


@keras.saving.register_keras_serializable("kerasvit")
class StandardizedConv(keras.layers.Layer):
    """Convolution without bias, with weight standardisation of the kernel.

    Each filter, over its height, width and input channels, loses its mean and is
    divided by its deviation; `kernel` keeps the raw values, (h, w, in, out). Gradients
    flow through the standardisation.

    Shape: (batch, H, W, C) → (batch, H', W', filters).

    Args:
        filters: Channels of the result.
        kernel_size: Edge of the square kernel in pixels.
        strides: Pixels between two applications.
        padding: "valid"; "same", as TensorFlow and XLA pad, which for a stride of 2 may
            be one more at the end; or an integer, zeros at each of the four borders.
        epsilon: Keeps the division finite: 1e-10 in big_transfer, 1e-8 in timm, both
            added to the variance.
        add_to_deviation: Adds `epsilon` to the deviation instead, as vit_jax's hybrids
            do with 1e-5.

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
        **kwargs,
    ):
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

    def build(self, input_shape):
        """Creates the kernel."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=keras.initializers.HeNormal(),
            # bfloat16 would round the raw values before their mean is taken.
            autocast=False,
        )

    def call(self, x):
        kernel = ops.cast(self.standardized_kernel(), x.dtype)
        padding = self.padding
        odd, half = self.kernel_size % 2, self.kernel_size // 2
        if self.strides == 1 and odd and padding == half:
            padding = "same"  # the same zeros, without a copy of the map
        if isinstance(padding, int):
            x = ops.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
            padding = "valid"
        if self.kernel_size == 1:
            return pointwise(x, kernel, self.strides)
        return ops.conv(
            x,
            kernel,
            strides=self.strides,
            padding=padding,
            data_format="channels_last",
        )

    def standardized_kernel(self):
        """Returns the standardised kernel in the variables' dtype."""
        kernel = ops.convert_to_tensor(self.kernel)
        # Two plain means: ops.moments has wrong second derivatives on TensorFlow.
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        if self.add_to_deviation:
            return kernel / (ops.sqrt(variance) + self.epsilon)
        return kernel / ops.sqrt(variance + self.epsilon)

    def compute_output_shape(self, input_shape):
        """(batch, H, W, C) → (batch, H', W', filters)."""
        batch, *sides, _ = input_shape
        return batch, *(self._length(side) for side in sides), self.filters

    def _length(self, side):
        if side is None:
            return None
        if self.padding == "same":
            return -(-side // self.strides)
        border = 0 if self.padding == "valid" else 2 * self.padding
        return (side + border - self.kernel_size) // self.strides + 1

    def get_config(self):
        """The constructor's arguments."""
        config = {
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "epsilon": self.epsilon,
            "add_to_deviation": self.add_to_deviation,
        }
        return {**super().get_config(), **config}
