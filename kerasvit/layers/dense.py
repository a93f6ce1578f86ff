"""A dense layer on rows, with the fastest product and bias addition."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.ops import product, remove_variable
from kerasvit.types import Tensor

from .layer import InnerLayer

FACTORS = ("lora_kernel_a", "lora_kernel_b")  # Keras's names of an adapter's variables


@keras.saving.register_keras_serializable("kerasvit")
class Dense(InnerLayer, keras.layers.Dense):
    """`keras.layers.Dense` with the same variables, applied to one row per token.

    The product is that of `kerasvit.ops`; for quantised kernels and other ranks it is
    Keras's own.

    Keras's files keep the kernel and the two factors of LoRA apart. Keras's own layer
    saves their sum in the compute dtype, and loads zeros for both factors, which then
    have no gradient.

    Shape: (rows, D) → (rows, units).

    Args: those of `keras.layers.Dense`.
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        plain = len(x.shape) == 2 and self.activation is keras.activations.linear
        if not plain:
            return super().call(x, training=training)
        bias = ops.convert_to_tensor(self.bias) if self.use_bias else None
        kernel = ops.convert_to_tensor(self.kernel)
        return self.operate(
            lambda x, kernel: product(x, kernel, bias), inputs=x, kernel=kernel
        )

    def quantize(
        self, mode: str | None = None, type_check: bool = True, **kwargs: Any
    ) -> None:
        """Quantises as `keras.layers.Dense`, whose type check rejects subclasses."""
        return super().quantize(mode, type_check=False, **kwargs)

    def __delattr__(self, name: str) -> None:
        # Keras quantises a kernel after deleting it, and with each deletion collects
        # garbage, which takes up to a second.
        if isinstance(getattr(self, name, None), keras.Variable):
            remove_variable(self, name)
        else:
            super().__delattr__(name)

    def merged_kernel(self) -> np.ndarray:
        """Returns the kernel plus LoRA's product, computed in float32 at least."""
        # In NumPy: accelerators round products to fewer bits.
        kernel, a, b = (
            ops.convert_to_numpy(ops.copy(variable))
            for variable in (self._kernel, self.lora_kernel_a, self.lora_kernel_b)
        )
        merged = kernel + self._lora_scale() * (a @ b)
        return merged.astype(keras.backend.standardize_dtype(self._kernel.dtype))

    def _lora_scale(self) -> float:
        rank: Any = self.lora_rank
        return self.lora_alpha / rank

    def disable_lora(self) -> None:
        """Removes the variables of LoRA; the layer computes with the kernel alone."""
        for name in FACTORS:
            remove_variable(self, name)
        self.lora_enabled, self.lora_rank, self.lora_alpha = False, None, None
        self._kernel.trainable = True

    def merge_lora(self) -> None:
        """Adds LoRA's product to the kernel and removes the variables of LoRA."""
        self._kernel.assign(self.merged_kernel())
        self.disable_lora()

    def save_own_variables(self, store: Any) -> None:
        """Saves the variables; with LoRA the kernel and both factors apart."""
        if not self.lora_enabled or self.quantization_mode is not None:
            return super().save_own_variables(store)
        own = [self._kernel, *([] if self.bias is None else [self.bias])]
        for i, variable in enumerate(own):
            store[str(i)] = variable
        for name in FACTORS:
            store[name] = getattr(self, name)
        store["lora_scale"] = np.array(self._lora_scale())

    def load_own_variables(self, store: Any) -> None:
        """Loads a file with or without LoRA into a layer with or without it."""
        if not self.built or self.quantization_mode is not None:
            return super().load_own_variables(store)
        saved = [np.asarray(store[name]) for name in FACTORS if name in store]
        own = {name: store[name] for name in store.keys() if name.isdecimal()}
        if saved and not self.lora_enabled:
            a, b = saved
            kernel = np.asarray(own["0"])
            product = np.asarray(store["lora_scale"]) * (a @ b)
            own["0"] = (kernel + product).astype(kernel.dtype)
        if self.lora_enabled and not saved:
            a = ops.convert_to_numpy(ops.copy(self.lora_kernel_a))
            saved = [a, np.zeros(self.lora_kernel_b.shape, a.dtype)]
        super().load_own_variables(own)
        if self.lora_enabled:
            for name, value in zip(FACTORS, saved, strict=True):
                getattr(self, name).assign(value)


def dense_in(
    outer: keras.layers.Layer, name: str, inputs: int, units: int, **options: Any
) -> Dense:
    """Returns a built dense layer of another layer, with the same dtype policy."""
    layer = Dense(units, name=name, dtype=outer.dtype_policy, **options)
    layer.build((None, inputs))
    return layer
