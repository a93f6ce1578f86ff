"""Keeps the values of a model's variables where a call on JAX fails."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras

from .threads import using

_like: Any = functools.wraps  # its types would be those of calls of `keras.Model`


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Context that gives values back to variables that have none at its end.

    Keras on JAX takes the values of all variables out of the model while it runs, so
    that other threads must wait, and gives them back at the end, but not after an error
    in tracing.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    variables += model.metrics_variables
    if model.compiled and model.optimizer is not None:
        variables += model.optimizer.variables
    with using(variables, alone=True):
        values = [variable._value for variable in variables]
        try:
            yield
        finally:
            for variable, value in zip(variables, values, strict=True):
                lost = variable._value is None and value is not None
                if lost and not value.is_deleted():
                    variable._value = value


class KeepsValues:
    """Base before `keras.Model`: its variables keep their values in a failed call."""

    # `keras.Model` is no base of this class: Keras would make it functional, and so
    # break its other subclasses.

    @_like(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().evaluate(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().fit(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().predict(*args, **kwargs)  # type: ignore[misc]
