"""What layers learn of compiled calls on PyTorch."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_recorded: ContextVar[bool] = ContextVar("a call is being compiled", default=False)


def is_recorded() -> bool:
    """Returns whether a call is being compiled, for batches of one shape."""
    return _recorded.get()


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Context in which a call is compiled."""
    token = _recorded.set(True)
    try:
        yield
    finally:
        _recorded.reset(token)
