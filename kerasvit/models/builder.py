"""Decorator of builders: the argument `dtype`, and errors for unknown arguments."""

import functools
import inspect
from contextlib import contextmanager

import keras

from .other_names import check_names

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")
POLICIES += ("bfloat16", "float16", "float64")


def builder(function):
    """Makes a function with an argument `dtype` a builder of `ImageModel`s.

    Its layers get the dtype policy that `dtype` names; those that compute in full
    precision anyhow, such as the head, take its variables' dtype. Arguments that the
    function does not have are a `ValueError` that names those that do the same.
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def build(*args, **kwargs):
        check_names(function.__name__, kwargs, known)
        with layers_of(kwargs.get("dtype")):
            return function(*args, **kwargs)

    return build


def recorded(arguments: dict) -> dict:
    """The arguments of a builder that a record keeps: those of the architecture."""
    return {k: v for k, v in arguments.items() if k not in ("name", "dtype")}


@contextmanager
def layers_of(dtype):
    """Inside, layers without a `dtype` have this one; None: the global policy's.

    Args:
        dtype: What any Keras layer takes for floating point numbers: a name, a
            `keras.DTypePolicy`, its config, a type such as `np.float32`; or None.

    Raises:
        ValueError: It is another one, such as an integer type or a quantised policy.
    """
    if dtype is None:
        yield
        return
    policy, before = _policy(dtype), keras.config.dtype_policy()
    # Keras keeps it for each thread, so no other thread sees the change.
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _policy(dtype):
    # One policy for all layers, no map, and no quantised layers.
    try:
        policy = keras.dtype_policies.get(dtype)
    except (ValueError, TypeError):  # of Keras, for what names no type
        policy = None
    if type(policy) is keras.DTypePolicy and policy.name in POLICIES:
        return policy
    raise ValueError(
        f"`dtype` must be one of {', '.join(POLICIES)}, or a type or keras.DTypePolicy "
        f"of that name. Received: {dtype!r:.200}. To quantise a model, build it first, "
        'then call model.quantize("int8").'
    )
