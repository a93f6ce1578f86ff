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


def only_a_pass(method: Callable) -> Callable:
    """Marks a method of a model that does nothing around what is recorded."""
    _only_passes.add(method)
    return method


def is_only_a_pass(method: Any) -> bool:
    """Returns whether a method of a model is marked so."""
    return getattr(method, "__func__", None) in _only_passes
