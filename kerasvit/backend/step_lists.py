"""What compiled steps on PyTorch keep for the next: passes, and lists of variables."""

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from .keras_private import layers_in

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
        self.parts: list[_Parts] = []  # of the layers of all models

    def watched(self, model: Any) -> list:
        """Returns the layers of a model, whose changes make `renew` forget all."""
        if id(model) not in self.of_models:
            before = {id(x) for layers in self.of_models.values() for x in layers}
            self.of_models[id(model)] = layers = layers_in(model)
            self.parts.append(_Parts([x for x in layers if id(x) not in before]))
        return self.of_models[id(model)]

    def listed(self, name: str, model: Any, make: Callable[[], list]) -> list:
        """Returns a list of a model's layers or their parts, made by the first call."""
        key = id(model), name
        if key not in self:
            self.watched(model)
            self[key] = make()
        return self[key]

    def renew(self) -> None:
        """Forgets all if layers have other parts or policies since."""
        if any(parts.differ() for parts in self.parts):
            self.clear()
            self.of_models.clear()
            self.parts.clear()


class _Parts:
    """Variables, metrics, layers and policies of layers at one time.

    Keras adds to the lists of a layer and removes from them, and makes no others.
    """

    def __init__(self, layers: list) -> None:
        self.layers = layers
        self.lists = [each for layer in layers for each in _lists_of(layer)]
        self.lengths, self.policies, self.parts = self._now()

    def _now(self) -> tuple[list, list, list]:
        return (
            [*map(len, self.lists)],
            [*map(_policy_of, self.layers)],
            [*itertools.chain.from_iterable(self.lists)],
        )

    def differ(self) -> bool:
        """Returns whether a layer has other parts or another policy now."""
        lengths, policies, parts = self._now()
        same = (lengths, policies) == (self.lengths, self.policies)
        # Variables compare their numbers, not themselves.
        return not (same and all(map(operator.is_, parts, self.parts)))


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
