"""Layer normalisation."""

import keras
from keras import ops

from kerasvit.backend.direct_calls import DirectCalls
from kerasvit.typing import Tensor


@keras.saving.register_keras_serializable("kerasvit")
class LayerNormalization(DirectCalls, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` with the same name, variables and values.

    Files of weights contain the name of the class, so that those with Keras's layer
    load.

    On JAX it computes on one row for each token, the shape of dense layers. In the
    shape of its input, XLA computes the gradient of the residual twice, in both shapes.

    Shape: (..., D) → same.

    Args: those of `keras.layers.LayerNormalization`.

    Reference: Ba et al. 2016, arXiv 1607.06450.
    """

    def call(self, inputs: Tensor) -> Tensor:
        if keras.backend.backend() != "jax" or self.axis != [-1]:
            return super().call(inputs)
        rows = super().call(ops.reshape(inputs, (-1, inputs.shape[-1])))
        return ops.reshape(rows, ops.shape(inputs))
