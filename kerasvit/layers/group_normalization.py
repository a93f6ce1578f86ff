"""Group normalisation whose second derivatives are right on every backend."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("kerasvit")
class GroupNormalization(keras.layers.GroupNormalization):
    """`keras.layers.GroupNormalization` over the last axis, the same variables.

    Two plain means take the place of `keras.ops.moments`, which has wrong second
    derivatives on TensorFlow and loses digits of a small variance on PyTorch.

    Shape: (batch, H, W, C) → same.

    Args: those of `keras.layers.GroupNormalization`, but no other axis than -1.

    Reference: Wu and He 2018, arXiv 1803.08494.
    """

    def call(self, x):
        dtype = keras.backend.result_type(x.dtype, "float32")
        _, height, width, channels = x.shape
        size = channels // self.groups
        groups = (-1, height or ops.shape(x)[1], width or ops.shape(x)[2])
        y = ops.reshape(ops.cast(x, dtype), (*groups, self.groups, size))
        y = y - ops.mean(y, axis=(1, 2, 4), keepdims=True)
        variance = ops.mean(ops.square(y), axis=(1, 2, 4), keepdims=True)
        scale = ops.rsqrt(variance + self.epsilon)
        if self.gamma is not None:
            gamma = ops.cast(self.gamma, dtype)
            scale = scale * ops.reshape(gamma, (self.groups, size))
        y = y * scale
        if self.beta is not None:
            beta = ops.cast(self.beta, dtype)
            y = y + ops.reshape(beta, (self.groups, size))
        return ops.cast(ops.reshape(y, ops.shape(x)), self.compute_dtype)
