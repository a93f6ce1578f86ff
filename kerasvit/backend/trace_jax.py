"""New traces of functions that JAX has traced before."""

import contextlib

import jax

# A part of the key of JAX's cache of traces.
_trace_key = jax.make_user_context()


def fresh_trace(traced: bool = True) -> contextlib.AbstractContextManager:
    """Context in which JAX reuses no trace of a function.

    JAX caches the traces of functions of `jax.checkpoint`, which is `keras.remat`, and
    of `jax.jit` that a layer has stored: the second pass of a step would compute with
    the weights of the first.
    """
    return _trace_key(object()) if traced else contextlib.nullcontext()
