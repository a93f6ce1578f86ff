"""Group normalisation."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import group_norm
from kerasvit.types import Shape, Tensor

from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class GroupNorm(Layer):
    """Normalises each image within groups of channels, with scale and shift.

    Values and variables are those of `keras.layers.GroupNormalization`, whose second
    derivatives are wrong on TensorFlow because it uses `ops.moments`.

    Shape: (batch, H, W, C) → same.

    Args:
        groups: Number of groups, a divisor of C.
        epsilon: Small constant added to the variance: 1e-5 in big_transfer and timm,
            1e-6 in vit_jax.
        gamma_initializer: Initialiser of the scale; with "zeros" a residual branch
            starts as 0.

    Raises:
        ValueError: C is not a multiple of `groups`.

    Reference: Wu and He 2018, arXiv 1803.08494.
    """

    def __init__(
        self,
        groups: int = 32,
        *,
        epsilon: float = 1e-5,
        gamma_initializer: str = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.groups = groups
        self.epsilon = epsilon
        self.gamma_initializer = gamma_initializer

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[-1]
        if channels % self.groups:
            raise ValueError(
                f"The channels must be a multiple of the {self.groups} groups. "
                f"Received: {channels}."
            )
        # bfloat16 would round them before the statistics, in float32, are scaled.
        same = {"shape": (channels,), "autocast": False}
        start = self.gamma_initializer
        self.gamma = self.add_weight(name="gamma", initializer=start, **same)
        self.beta = self.add_weight(name="beta", initializer="zeros", **same)

    def call(self, x: Tensor) -> Tensor:
        x = group_norm(x, self.groups, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)
