"""Checks of call arguments, used by all rooms."""

import math
import numbers
import operator
from typing import Any, NoReturn

import keras
import numpy as np

# Largest side of an image in pixels; a resized image has at most its square of pixels.
# A strip of 10 × 90,000 pixels, or a hostile config, would otherwise need gigabytes.
MAX_SIDE = 16_384


class ArgumentError(ValueError):
    """An argument of a call is invalid.

    Args:
        message: The expected and the received value, and how to correct the call.
        *arguments: Names of the invalid arguments.
    """

    def __init__(self, message: str, *arguments: str) -> None:
        super().__init__(message)
        self.arguments = arguments


def integer(
    name: str,
    value: Any,
    low: int,
    high: int | None = None,
    *,
    meaning: str = "",
) -> int:
    """Checks a whole number, of Python or NumPy, and returns it as an int.

    Args:
        name: Name of the argument.
        value: Value that the caller passed.
        low: Smallest allowed value.
        high: Largest allowed value; None: no limit.
        meaning: What the argument is, for the error message.

    Raises:
        ArgumentError: `value` is not a whole number, or out of its range.
    """
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number >= low and (high is None or number <= high):
        return number
    _refuse(name, value, f"a whole number {_range(low, high, ']')}", meaning)


def number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    positive: bool = False,
    meaning: str = "",
) -> float:
    """Checks a finite number in [low, high) and returns it as a float.

    Args:
        name: Name of the argument.
        value: Value that the caller passed.
        low: Smallest allowed value.
        high: Upper limit, not allowed itself.
        positive: Whether the number must be > 0; use it without `low`.
        meaning: What the argument is, for the error message.

    Raises:
        ArgumentError: `value` is not a finite number, or out of its range.
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if real and math.isfinite(value) and low <= value < high:
        if value > 0 or not positive:
            return float(value)
    within = "> 0" if positive else _range(low, high, ")")
    _refuse(name, value, f"a finite number {within}", meaning)


def _range(low: float, high: float | None, bracket: str) -> str:
    if high in (None, math.inf):
        return "" if low == -math.inf else f"≥ {low}"
    return f"in [{low}, {high}{bracket}"


def _refuse(name: str, value: Any, expected: str, meaning: str) -> NoReturn:
    expected = ", ".join(part for part in (expected.strip(), meaning) if part)
    raise ArgumentError(
        f"`{name}` must be {expected}. Received: {name}={value!r:.200}.", name
    )


def number_of_each(
    name: str, value: Any, count: int, low: float, high: float
) -> tuple[float, ...]:
    """Checks `count` numbers in [low, high] and returns them; one stands for all.

    Raises:
        ArgumentError: `value` is none of these, or out of its range.
    """
    values: Any = [value] * count if isinstance(value, numbers.Real) else value
    if (
        not isinstance(values, (list, tuple, np.ndarray))
        or len(values) != count
        or not all(_is_real(v) and low <= v <= high for v in values)
    ):
        many = "a number" if count == 1 else f"a number or {count} numbers"
        raise ArgumentError(
            f"`{name}` must be {many} between {low} and {high}. Received: "
            f"{value!r:.100}.",
            name,
        )
    return tuple(float(v) for v in values)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real)


def one_of(name: str, value: Any, known: tuple) -> Any:
    """Checks that a value is one of `known`; 0 and 1 stand for False and True.

    Raises:
        ArgumentError: It is none of them.
    """
    for choice in known:
        if isinstance(choice, bool):
            same = isinstance(value, (int, np.bool_))
        else:
            same = isinstance(value, type(choice)) and not isinstance(value, bool)
        if same and value == choice:
            return choice
    raise ArgumentError(
        f"`{name}` must be one of {', '.join(map(repr, known))}. Received: "
        f"{value!r:.100}.",
        name,
    )


def sides(image_size: Any, name: str = "image_size") -> list[int]:
    """Checks an image size, one side or (height, width), and returns both sides.

    Raises:
        ArgumentError: It is neither, or a side is not in [1, `MAX_SIDE`].
    """
    try:
        values = list(image_size)
    except TypeError:
        values = [image_size] * 2
    if len(values) != 2 or isinstance(image_size, (str, dict)):
        raise ArgumentError(
            f"`{name}` must be an integer or (height, width), in pixels. Received: "
            f"{image_size!r:.200}.",
            name,
        )
    return [integer(name, value, 1, MAX_SIDE) for value in values]


def sides_or_any(image_size: Any) -> list[int] | list[None]:
    """Checks an image size, `sides` or (None, None), which means images of any size.

    Raises:
        ArgumentError: It is none of these; one side alone may not be None.
    """
    if isinstance(image_size, (tuple, list)) and None in image_size:
        if list(image_size) == [None, None]:
            return [None, None]
        raise ArgumentError(
            "`image_size` must state both sides, or neither: (None, None) for images "
            f"of any size. Received: {image_size!r:.200}.",
            "image_size",
        )
    return sides(image_size)


def is_any(image_size: Any) -> bool:
    """Returns whether a checked image size is that of images of any size."""
    return image_size is not None and list(image_size) == [None, None]


def check_built(model: Any) -> None:
    """Checks that a model is a `keras.Model` with variables.

    Raises:
        ArgumentError: `model` is not a `keras.Model`, or is not built.
    """
    if not isinstance(model, keras.Model):
        raise ArgumentError(
            "`model` must be a keras.Model: functional, Sequential or a subclass. "
            f"Received: model={model!r}.",
            "model",
        )
    # `build` sets `built` for a subclass without its own `build`, and creates nothing.
    empty = not model.variables and not all(part.built for part in model.layers)
    if not model.built or empty:
        raise ArgumentError(
            "`model` has no variables yet. Call it once on a batch, "
            f"or `model.build(input_shape)`, first. Received: model={model!r}.",
            "model",
        )
