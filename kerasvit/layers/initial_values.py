"""What variables begin with: random numbers, unless a checkpoint brings others."""

import contextlib
import contextvars

import keras

_follow = contextvars.ContextVar("values_follow", default=False)


@contextlib.contextmanager
def values_follow():
    """Inside, layers begin with zeros where they else draw at random, which is slow.

    For models whose variables are all written as soon as they are built. What begins
    with zeros or ones by itself, such as a fresh head, is as it always is.
    """
    token = _follow.set(True)
    try:
        yield
    finally:
        _follow.reset(token)


def drawn(initializer):
    """A random initializer; inside `values_follow`, zeros in its place."""
    return keras.initializers.Zeros() if _follow.get() else initializer
