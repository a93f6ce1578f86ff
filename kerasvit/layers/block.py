"""Base of the blocks of a model, whose activations may be recomputed."""

from collections.abc import Callable
from typing import Any

from kerasvit.backend import rematerialized
from kerasvit.backend.direct_calls import DirectCalls


class Block(DirectCalls):
    """A layer that Keras can rematerialise on every backend.

    If it was constructed in `keras.RematScope("list_of_layers", layer_names=…)`, which
    names it, training stores its inputs instead of the activations inside, and computes
    these again in the backward pass.
    """

    def rematerialized_call(
        self, layer_call: Callable, *args: Any, **kwargs: Any
    ) -> Callable:
        """Returns the method that Keras calls instead of `call` or `quantized_call`."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is layer_call:
            return layer_call  # the scope does not have this layer
        return rematerialized(self, layer_call)
