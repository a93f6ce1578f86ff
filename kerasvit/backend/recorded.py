"""What layers and models tell the compiled passes on PyTorch, and learn of them."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

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


def only_a_pass(call: Any) -> Any:
    """Marks a model's `call` that does nothing around the pass that is compiled."""
    call.only_a_pass = True
    return call


def is_only_a_pass(call: Callable) -> bool:
    """Returns whether `call` is marked so."""
    return getattr(call, "only_a_pass", False)
