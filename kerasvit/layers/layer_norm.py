"""Layer normalisation."""

import keras
from keras import ops

from kerasvit.ops import layer_norm
from kerasvit.types import Shape, Tensor

from .layer import InnerLayer


@keras.saving.register_keras_serializable("kerasvit")
class LayerNormalization(InnerLayer, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` with the same name, variables and values.

    Files of weights contain the name of the class, so that those with Keras's layer
    load.

    The last axis is normalised by `kerasvit.ops`, which does not round the results of
    integers. For other axes it calls Keras's own `call`.

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
        if self.axis != [-1] or self.rms_scaling or self.epsilon is None:
            return super().call(inputs)
        given = self.gamma, self.beta, self.epsilon
        x = self.operate(lambda x: layer_norm(x, *given), normalized=inputs)
        return ops.cast(x, self.compute_dtype)
