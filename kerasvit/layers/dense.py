"""A dense layer on rows, with the fastest bias addition of each backend."""

from typing import Any

import keras
from keras import ops

from kerasvit.backend.linear import product_plus_bias
from kerasvit.typing import Tensor


@keras.saving.register_keras_serializable("kerasvit")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` with the same variables, applied to one row per token.

    On PyTorch one operation computes the product and adds the bias, which Keras adds in
    a second pass over the result. For LoRA, quantised kernels, other ranks and other
    backends it calls Keras's own `call`.

    Shape: (rows, D) → (rows, units).

    Args: those of `keras.layers.Dense`.
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        plain = self.use_bias and not self.lora_enabled and len(x.shape) == 2
        if (
            keras.backend.backend() != "torch"
            or not plain
            or self.activation is not keras.activations.linear
        ):
            return super().call(x, training=training)
        bias, kernel = (ops.convert_to_tensor(w) for w in (self.bias, self.kernel))
        return product_plus_bias(x, kernel, bias)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, **kwargs: Any
    ) -> None:
        """Quantises as `keras.layers.Dense`, whose type check rejects subclasses."""
        return super().quantize(mode, type_check=False, **kwargs)
