"""What layers and models tell the compiled passes on PyTorch, and learn of them."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

_only_passes: set[Callable] = set()
_recorded: ContextVar[bool] = ContextVar("a pass is being recorded", default=False)


def is_recorded() -> bool:
    """Returns whether operations are being recorded for a compiled pass."""
    return _recorded.get()


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Context in which operations are recorded."""
    token = _recorded.set(True)
    try:
        yield
    finally:
        _recorded.reset(token)


def only_a_pass(call: Callable) -> Callable:
    """Marks a model's `call` that does nothing around the pass that is compiled."""
    _only_passes.add(call)
    return call


def calls_only_a_pass(model: Any) -> bool:
    """Returns whether the `call` of a model is marked so."""
    return getattr(model.call, "__func__", None) in _only_passes
