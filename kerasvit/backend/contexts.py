"""Keras's global state during the call of a layer, for functions that run again."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from keras.src.backend.common import global_state

from .threads import SUBSTITUTES

# A layer's call sets the first two for the layers inside it: the `training` argument,
# and the dtype that variables are cast to.
_CONTEXTS = ("current_call_ctx", "autocast_scope", SUBSTITUTES)


def current_call() -> Any:
    """Returns the context of the layer's call that is running, or None."""
    return global_state.get_global_attribute(_CONTEXTS[0])


def current_training() -> Any:
    """Returns `training` of the layer's call that is running, or None.

    In `keras.RematScope` it is a traced boolean on JAX.
    """
    call = current_call()
    return None if call is None else call.get_value("training")


def contexts() -> list:
    """Returns copies, because the layers that are called next change the contexts."""
    return [copy.copy(global_state.get_global_attribute(name)) for name in _CONTEXTS]


@contextlib.contextmanager
def restored(contexts: list) -> Iterator[None]:
    """Restores the surrounding contexts for a function that runs again."""
    others = [global_state.get_global_attribute(name) for name in _CONTEXTS]
    for name, context in zip(_CONTEXTS, contexts, strict=True):
        global_state.set_global_attribute(name, copy.copy(context))
    try:
        yield
    finally:
        for name, context in zip(_CONTEXTS, others, strict=True):
            global_state.set_global_attribute(name, context)
