"""Functions of a model's variables on TensorFlow, and their gradients."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasvit.types import Tensor

from .scope_tensorflow import PassScope


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Same as in `at_weights_torch.py`; compiles the function once per shape."""

    @tf.function
    def value(values: list[Tensor], *args: Any) -> Tensor:
        with _scope(variables, values, None):
            return function(*args)

    return value


def gradients_at(
    variables: list[keras.Variable], function: Callable[..., Tensor], count: int
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Same as in `at_weights_torch.py`; compiles the function once per shape."""

    @tf.function
    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        weights = [tf.identity(value) for value in values[:count]]
        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            _scope(variables, [*weights, *values[count:]], tape),
        ):
            tape.watch(weights)
            value = function(*args)
            found = tape.gradient(
                value, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        # The gradient of an embedding is a sparse `tf.IndexedSlices`.
        return value, [tf.convert_to_tensor(gradient) for gradient in found]

    return gradients


def _scope(
    variables: list[keras.Variable], values: list[Tensor], tape: Any
) -> PassScope:
    scope = PassScope((), tape)
    # `__init__` would round values of another dtype to that of their variable.
    ids = map(id, variables)
    scope.state_mapping = dict(zip(ids, values, strict=True))
    return scope
