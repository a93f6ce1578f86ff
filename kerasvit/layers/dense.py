"""A dense layer on rows, with the fastest bias addition of each backend."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("kerasvit")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` with the same variables, applied to one row per token.

    PyTorch starts the product from the bias; Keras adds it in a second pass over the
    result. LoRA, quantised kernels, other ranks and other backends are left to Keras.

    Shape: (rows, D) → (rows, units).

    Args: those of `keras.layers.Dense`.
    """

    def call(self, x, training=None):
        plain = self.use_bias and not self.lora_enabled and len(x.shape) == 2
        if (
            keras.backend.backend() != "torch"
            or not plain
            or self.activation is not keras.activations.linear
        ):
            return super().call(x, training=training)
        bias, kernel = (ops.convert_to_tensor(w) for w in (self.bias, self.kernel))
        return bias.addmm(x, kernel)

    def quantize(self, mode=None, type_check=True, **kwargs):
        """As `keras.layers.Dense`, which would refuse a subclass."""
        return super().quantize(mode, type_check=False, **kwargs)
