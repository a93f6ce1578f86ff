"""Takes a model's state for a step on JAX, and gives it back, in less time."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope

from kerasvit.typing import Tensor

from .keras_internals import values_of
from .threads import using

_LISTS = "_lists_of_step"
_like: Any = functools.wraps  # its types would be those of calls of `keras.Model`


@contextlib.contextmanager
def _looking_once(model: Any, function: Callable | None) -> Iterator[None]:
    """Context of a step that looks through a model's layers once; other threads wait.

    Not of the first step, which has no compiled function yet: it may add variables to
    the optimizer and to metrics.
    """
    attributes = vars(model)
    if function is None or _LISTS in attributes:
        with _alone(model):
            yield
        return
    attributes[_LISTS] = {}  # Keras would track an attribute that is set
    try:
        with _alone(model):
            yield
    finally:
        attributes.pop(_LISTS, None)


def _alone(model: Any) -> contextlib.AbstractContextManager:
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    return using(variables, alone=True)


class QuickState:
    """Base before `keras.Model` on JAX: finds its variables once in a step.

    Follows keras/src/backend/jax/trainer.py. A step of `train_on_batch`,
    `test_on_batch` or `predict_on_batch` takes the values of all variables, and gives
    the new ones back, while a GPU waits. Keras looks through all layers up to ten
    times, checks and converts each value, and in `fit` too looks for variables in the
    values.
    """

    _jax_state: dict[str, list[Tensor]] | None
    _jax_state_synced: bool
    optimizer: Any
    train_function: Any
    test_function: Any
    predict_function: Any

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; without Keras's search for variables in a state."""
        if name == "_jax_state":
            vars(self)[name] = value
        else:
            super().__setattr__(name, value)

    @_like(keras.Model.train_on_batch)
    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with _looking_once(self, self.train_function):
            return super().train_on_batch(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.test_on_batch)
    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with _looking_once(self, self.test_function):
            return super().test_on_batch(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.predict_on_batch)
    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with _looking_once(self, self.predict_function):
            return super().predict_on_batch(*args, **kwargs)  # type: ignore[misc]

    @property
    def variables(self) -> list[keras.Variable]:
        """All variables of layers."""
        return self._once("variables", lambda: super(QuickState, self).variables)  # type: ignore[misc]

    @property
    def metrics(self) -> list[keras.Metric]:
        """All metrics."""
        return self._once("metrics", lambda: super(QuickState, self).metrics)  # type: ignore[misc]

    def _flatten_layers(self, include_self: bool = True, recursive: bool = True) -> Any:
        def find() -> list:
            return super(QuickState, self)._flatten_layers(include_self, recursive)  # type: ignore[misc]

        return self._once(f"layers {include_self} {recursive}", find)

    def _once(self, name: str, find: Callable[[], list]) -> list:
        """Returns a new list of what is found, in a step by the first call."""
        lists = vars(self).get(_LISTS)
        if lists is None:
            return find()
        if name not in lists:
            lists[name] = find()
        return [*lists[name]]

    def _get_jax_state(
        self,
        trainable_variables: bool = False,
        non_trainable_variables: bool = False,
        optimizer_variables: bool = False,
        metrics_variables: bool = False,
        purge_model_variables: bool = False,
    ) -> tuple[list[Tensor], ...]:
        """Returns the values of groups of variables."""
        groups = {
            "trainable_variables": trainable_variables,
            "non_trainable_variables": non_trainable_variables,
            "optimizer_variables": optimizer_variables,
            "metrics_variables": metrics_variables,
        }
        wanted = [name for name, each in groups.items() if each]
        state = tuple(values_of(self._group(name)) for name in wanted)
        if purge_model_variables:
            self._purge_model_variables(**groups)  # type: ignore[attr-defined]
        return state

    def jax_state_sync(self) -> None:
        """Gives the values of a step back to the variables."""
        state = vars(self).get("_jax_state")
        if not state or self._jax_state_synced:
            return
        if in_stateless_scope():
            super().jax_state_sync()  # type: ignore[misc]
            return
        for name, values in state.items():
            if values:
                # Not strict: a step may have added variables to a metric.
                for variable, value in zip(self._group(name), values, strict=False):
                    _write(variable, value)
        self._jax_state_synced = True

    def _group(self, name: str) -> list[keras.Variable]:
        if name == "optimizer_variables":
            return self.optimizer.variables
        return getattr(self, name)


def _write(variable: Any, value: Tensor) -> None:
    """Assigns a value, without checks if it has the shape and dtype of that before."""
    before = variable._value
    alike = isinstance(before, jax.Array) and isinstance(value, jax.Array)
    if alike and before.aval == value.aval and variable._layout is None:
        variable._value = value
    else:
        variable.assign(value)
