"""Stochastic depth: drops residual branches at random."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import number
from kerasvit.ops import uniform
from kerasvit.types import Tensor

from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class StochasticDepth(Layer):
    """Drops a residual branch, per sample, during training.

    A kept branch is divided by the probability of keeping it, so that its expectation
    is that of inference (timm's DropPath; big_vision's Mixer does not divide).

    Shape: (batch, ...) → same.

    Args:
        rate: Probability of dropping the branch, in [0, 1).
        seed: Seed of the masks, an integer or None.

    Raises:
        ValueError: `rate` is out of range.

    Reference: Huang et al. 2016, arXiv 1603.09382; timm/layers/drop.py.
    """

    def __init__(self, rate: float, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = number("rate", rate, 0, 1, meaning="the share of dropped branches")
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        if not training or self.rate == 0:
            return x
        shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        keep = 1 - self.rate
        # Drawn in float32: bfloat16 has too few values between 0 and 1 for the rate.
        draw = uniform(shape, self.seed_generator)
        mask = ops.cast(draw < keep, x.dtype)
        return x * mask / keep
