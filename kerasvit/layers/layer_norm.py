"""Layer normalisation."""

import keras
from keras import ops

from kerasvit.backend.direct_calls import DirectCalls
from kerasvit.backend.keras_private import current_training
from kerasvit.typing import Shape, Tensor

if keras.backend.backend() == "jax":
    from kerasvit.backend import gpu_jax


@keras.saving.register_keras_serializable("kerasvit")
class LayerNormalization(DirectCalls, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` with the same name, variables and values.

    Files of weights contain the name of the class, so that those with Keras's layer
    load.

    On JAX it computes on one row for each token, the shape of dense layers. In the
    shape of its input, XLA computes the gradient of the residual twice, in both shapes.
    In inference on a GPU it subtracts the mean first, which XLA compiles into one
    kernel instead of four (compiled for an H100, not timed); a gradient would store
    more.
    On TensorFlow it has fewer operations on whole arrays, in both passes, and does not
    round the results of integers.

    Shape: (..., D) → same.

    Args: those of `keras.layers.LayerNormalization`.

    Reference: Ba et al. 2016, arXiv 1607.06450.
    """

    def build(self, input_shape: Shape) -> None:
        """Creates the variables. Other widths, which could broadcast, are refused."""
        super().build(input_shape)
        if self.axis == [-1]:
            self.input_spec = keras.layers.InputSpec(axes={-1: input_shape[-1]})

    def call(self, inputs: Tensor) -> Tensor:
        backend = keras.backend.backend()
        if backend == "torch" or self.axis != [-1]:
            return super().call(inputs)
        plain = not self.rms_scaling and self.epsilon is not None
        if backend == "tensorflow":
            return self._by_deviations(inputs) if plain else super().call(inputs)
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        # No argument of `call`: TensorFlow refuses it in `keras.RematScope`.
        training = current_training()
        inference = training is None or training is False
        if plain and inference and gpu_jax.on_gpu():
            # Without a barrier XLA adds the residual here, and once more where the
            # result of the MLP is added.
            rows = self._by_deviations(gpu_jax.materialized(rows))
        else:
            rows = super().call(rows)
        return ops.reshape(rows, ops.shape(inputs))

    def _by_deviations(self, inputs: Tensor) -> Tensor:
        """Subtracts the mean once, for the variance and for the result."""
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + self.epsilon)
        if self.gamma is not None:
            x = x * ops.cast(self.gamma, x.dtype)
        if self.beta is not None:
            x = x + ops.cast(self.beta, x.dtype)
        return ops.cast(x, self.compute_dtype)
