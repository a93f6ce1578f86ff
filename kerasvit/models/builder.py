"""Decorator that checks a builder's arguments, sets the dtype, and records both."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, cast

import keras

from .checks import check_names, checked_by_name
from .image_model import ImageModel, new_record

POLICIES: tuple[str, ...] = ("float32", "mixed_bfloat16", "mixed_float16")
POLICIES += ("bfloat16", "float16", "float64")


P = ParamSpec("P")


class BuilderOf(Protocol[P]):
    """A builder with the arguments of the function that it was made of."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ImageModel:
        """Builds the model."""
        ...

    def check(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Returns the checked arguments, with defaults, and builds nothing."""
        ...


def builder(
    check: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[Callable[P, ImageModel]], BuilderOf[P]]:
    """Makes a function of keyword arguments a builder of `ImageModel`s.

    The function gets checked arguments. Its layers get the dtype policy that `dtype`
    names; layers that compute in full precision anyhow, such as the head, take the
    policy's dtype of variables. The model gets its record.

    Args:
        check: Function of a dictionary of all arguments but `name` and `dtype`, in the
            order of the signature; those in `checks.CHECKS` are checked before. It
            returns all of them checked, as plain JSON but for the `Size`, and raises a
            `ValueError` for a wrong value.

    Returns:
        Decorator of a function with the arguments `name` and `dtype`. The builder has
        the function's signature, and the attribute `check`: a function of the same
        arguments that returns those of the architecture, checked and with defaults
        filled in, and builds nothing.
    """

    def decorate(function: Callable[P, ImageModel]) -> BuilderOf[P]:
        signature = inspect.signature(function)
        make: Callable[..., ImageModel] = function

        def checked(**kwargs: Any) -> dict[str, Any]:
            check_names(function.__name__, kwargs, signature.parameters)
            _policy(kwargs.get("dtype"))
            try:
                bound = signature.bind(**kwargs)
            except TypeError as error:  # an argument without a default is missing
                raise TypeError(f"{function.__name__}: {error}.") from None
            bound.apply_defaults()
            outside = ("name", "dtype")
            given = {k: v for k, v in bound.arguments.items() if k not in outside}
            return _plain(check(checked_by_name(given)))

        @functools.wraps(function)
        def build(**kwargs: Any) -> ImageModel:
            arguments = checked(**kwargs)
            with _layers_of(_policy(kwargs.get("dtype"))):
                model = make(**{**kwargs, **arguments})
            model.record = new_record(function.__name__, arguments)
            return model

        build.check = checked  # type: ignore[attr-defined]
        return cast(BuilderOf[P], build)

    return decorate


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments as plain JSON, which has no tuples."""
    return {**arguments, "image_size": [*arguments["image_size"]]}


@contextmanager
def _layers_of(policy: keras.DTypePolicy) -> Iterator[None]:
    """Context in which layers without a `dtype` have this dtype policy."""
    before = keras.config.dtype_policy()
    # Keras keeps it for each thread, so no other thread sees the change.
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _policy(dtype: Any) -> keras.DTypePolicy:
    """Returns the policy of a builder's layers.

    Args:
        dtype: What any Keras layer takes for floating point numbers: a name, a
            `keras.DTypePolicy`, its config, a type such as `np.float32`; None: the
            global policy.

    Raises:
        ValueError: It is another one, such as an integer type or a quantised policy.
    """
    if dtype is None:
        return keras.config.dtype_policy()
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
