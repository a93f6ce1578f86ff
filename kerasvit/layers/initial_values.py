"""Initialisers that draw nothing while a checkpoint is loaded."""

import contextlib
import contextvars
import math

import keras

_left = contextvars.ContextVar("values_follow", default=None)


class TooLarge(ValueError):
    """A model is larger than what it is built for.

    Args:
        what: That it has too many of: an argument of `values_follow`.
    """

    def __init__(self, what):
        super().__init__(f"The model has more {what} than were expected.")
        self.what = what


@contextlib.contextmanager
def values_follow(*, weights=math.inf, tensors=math.inf, table_bytes=math.inf):
    """Context in which variables begin with zeros instead of random values.

    For models whose variables are all written as soon as they are built. What begins
    with zeros or ones by itself, such as a fresh head, is as it always is.

    Args:
        weights: How many the model may have, those of normalisations not counted.
        tensors: How many variables may hold them.
        table_bytes: Memory of all tables that layers compute, such as masks.

    Raises:
        TooLarge: The next layer would have more; it has taken no memory yet.
    """
    left = {"weights": weights, "tensors": tensors, "table_bytes": table_bytes}
    token = _left.set(left)
    try:
        yield
    finally:
        _left.reset(token)


def drawn(initializer):
    """Wraps a random initialiser: inside `values_follow` it gives zeros, counted."""
    if _left.get() is None:
        return initializer

    def zeros(shape, dtype=None):
        counted(weights=math.prod(shape), tensors=1)
        return keras.initializers.Zeros()(shape, dtype=dtype)

    return zeros


def counted(**amounts):
    """Counts memory that no `drawn` variable takes; call it before taking any.

    Args:
        **amounts: By the arguments of `values_follow`.

    Raises:
        TooLarge: It is more than is left there; outside of it all is allowed.
    """
    left = _left.get()
    for what, amount in amounts.items() if left else ():
        left[what] -= amount
        if left[what] < 0:
            raise TooLarge(what)
