"""What compiled steps on PyTorch keep for the next: passes, and lists of variables."""

import contextlib
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from .keras_internals import layers_in

_kept: ContextVar["Kept | None"] = ContextVar("compiled passes", default=None)
_lists_of = operator.attrgetter(
    "_trainable_variables", "_non_trainable_variables", "_metrics", "_layers"
)
_policy_of = operator.attrgetter("_dtype_policy")


class Kept(dict):
    """What a step with compiled passes keeps for the next: passes, and lists."""

    def __init__(self) -> None:
        super().__init__()
        self.of_models: dict[int, list] = {}  # their layers
        self.layers: list = []  # of all models
        self.lists: list = []  # their variables, metrics and layers
        self.state: list = []

    def watched(self, model: Any) -> list:
        """Returns the layers of a model, whose changes make `renew` forget all."""
        if id(model) not in self.of_models:
            self.of_models[id(model)] = layers_in(model)
            every = (layer for layers in self.of_models.values() for layer in layers)
            self.layers = [*{id(layer): layer for layer in every}.values()]
            self.lists = [each for layer in self.layers for each in _lists_of(layer)]
            self.state = self._state()
        return self.of_models[id(model)]

    def listed(self, name: str, model: Any, make: Callable[[], list]) -> list:
        """Returns a list of a model's variables or metrics, made by the first call."""
        key = id(model), name
        if key not in self:
            self.watched(model)
            self[key] = make()
        return self[key]

    def renew(self) -> None:
        """Forgets all if layers have other parts or policies since."""
        if self._state() != self.state:
            self.clear()
            self.of_models.clear()
            self.layers, self.lists, self.state = [], [], []

    def _state(self) -> list:
        """Returns what a step depends on besides numbers.

        Keras adds to the lists of a layer and removes from them, and makes no others.
        """
        return [*map(len, self.lists), *map(_policy_of, self.layers)]


def of_step() -> Kept | None:
    """Returns what the running step keeps for the next; None without compilation."""
    return _kept.get()


def listed(name: str, model: Any, make: Callable[[], list]) -> list:
    """Returns a list, which in a step that compiles its passes the last one made."""
    kept = of_step()
    return make() if kept is None else kept.listed(name, model, make)


@contextlib.contextmanager
def keeping(kept: Kept | None) -> Iterator[None]:
    """Context of a step that compiles its passes, or of calls that do not (None)."""
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
