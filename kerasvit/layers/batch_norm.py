"""Batch normalisation."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import batch_norm, normalized
from kerasvit.types import Tensor

from .layer import InnerLayer


@keras.saving.register_keras_serializable("kerasvit")
class BatchNormalization(InnerLayer, keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` with the same name, variables and values.

    Files of weights contain the name of the class, so that those with Keras's layer
    load.

    Feature maps are normalised by `kerasvit.ops`. For a mask and other ranks it calls
    Keras's own `call`.

    Shape: (batch, H, W, C) → same.

    Args: those of `keras.layers.BatchNormalization`.

    Reference: Ioffe and Szegedy 2015, arXiv 1502.03167.
    """

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Any = None
    ) -> Tensor:
        shape = inputs.shape
        maps = len(shape) == 4 and self.axis in (-1, 3) and 0 not in shape
        special = mask is not None or self.renorm or self.synchronized
        if special or not maps:
            return super().call(inputs, training=training, mask=mask)
        # bfloat16 would round the statistics.
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        scale = ops.cast(self.gamma, x.dtype) if self.scale else None
        shift = ops.cast(self.beta, x.dtype) if self.center else None
        variables = self.moving_mean, self.moving_variance
        moving = [ops.cast(variable, x.dtype) for variable in variables]
        if training and self.trainable:
            x, *found = batch_norm(x, scale, shift, self.epsilon)
            for variable, old, new in zip(variables, moving, found, strict=True):
                variable.assign(old * self.momentum + new * (1.0 - self.momentum))
        else:
            mean, variance = moving
            x = normalized(x, mean, variance, scale, shift, self.epsilon)
        return ops.cast(x, self.compute_dtype)
