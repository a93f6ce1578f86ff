"""Tells whether a pass is being recorded for `graphs_torch.py`."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

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
