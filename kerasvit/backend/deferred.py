"""Builds models whose variables get their values later, from a checkpoint."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common import global_state

from .keras_internals import layers_in

_PENDING = "uninitialized_variables"  # Keras's name of the list


class TooLargeError(ValueError):
    """A model has more weights or variables than it may have.

    Args:
        what: "weights" or "variables".
    """

    def __init__(self, what: str):
        super().__init__(f"The model has more {what} than were expected.")
        self.what = what


class _Pending(list):
    """Replacement for Keras's list of variables without values.

    `append` counts the variables, raises beyond the limits, and makes zeros the initial
    value of weights.
    """

    def __init__(self, limits: dict[str, float]) -> None:
        super().__init__()
        self._left = dict(limits)

    def append(self, variable: Any) -> None:
        for what, amount in (("variables", 1), ("weights", math.prod(variable.shape))):
            self._left[what] -= amount
            if self._left[what] < 0:
                raise TooLargeError(what)
        if keras.backend.is_float_dtype(variable.dtype):  # no state of seed generators
            variable._initializer = keras.initializers.Zeros()
        super().append(variable)


def built_with_zeros(
    build: Callable[[], keras.Model],
    *,
    max_weights: float = math.inf,
    max_variables: float = math.inf,
) -> keras.Model:
    """Builds a model whose weights are zeros, whatever their initializers are.

    For a model whose weights are all assigned afterwards. Nothing is drawn at random,
    and no memory is taken before the whole model is known to be small enough.

    Args:
        build: Function that builds the model.
        max_weights: Number of weights that the model may have.
        max_variables: Number of variables that it may have.

    Raises:
        TooLargeError: The model would have more.
    """
    before = global_state.get_global_attribute(_PENDING)
    pending = _Pending({"weights": max_weights, "variables": max_variables})
    global_state.set_global_attribute(_PENDING, pending)
    try:
        with keras.StatelessScope(initialize_variables=False):
            model = build()
    finally:
        global_state.set_global_attribute(_PENDING, before or [])
    for variable in pending:
        variable._deferred_initialize()
    for layer in layers_in(model):
        layer._post_build()  # PyTorch takes the values for its parameters here
    return model
