"""Checks of call arguments, sizes of images and patches; used by all rooms."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import keras
import numpy as np

from .types import PatchSize

# Largest side of an image in pixels; a resized image has at most its square of pixels.
# A strip of 10 × 90,000 pixels, or a hostile config, would otherwise need gigabytes.
MAX_SIDE = 16_384
# Far above those of all models.
MAX_PATCH = 1024  # side of a patch in pixels
MAX_CHANNELS = 1000  # of images


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


def patch_size(name: str, value: Any) -> PatchSize:
    """Checks a side of square patches, or (height, width), and returns it.

    Args:
        name: Name of the argument.
        value: An int, or both sides, each in [1, `MAX_PATCH`]; a pair of equal sides is
            returned as an int.

    Raises:
        ArgumentError: `value` is none of these.
    """
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return integer(name, value, 1, MAX_PATCH, meaning="or (height, width)")
    height, width = (integer(name, side, 1, MAX_PATCH) for side in value)
    return height if height == width else [height, width]


def patch_sides(patch_size: PatchSize) -> tuple[int, int]:
    """Returns (height, width) of a patch, given its side or both."""
    if isinstance(patch_size, int):
        return patch_size, patch_size
    height, width = patch_size
    return height, width


def whole_patches(image_size: Sequence[Any], patch_size: PatchSize) -> tuple[Any, Any]:
    """Returns (height, width) of an image in whole patches; None for unknown sides.

    Args:
        image_size: (height, width) in pixels: integers, tensors or None.
        patch_size: As of the builders.
    """
    height, width = (
        None if side is None else side // patch
        for side, patch in zip(image_size, patch_sides(patch_size), strict=True)
    )
    return height, width


def cells_of(
    image_size: Sequence[int], stride: PatchSize, partial: bool
) -> tuple[int, int]:
    """Returns the (height, width) of an image in patches.

    Args:
        image_size: (height, width) in pixels.
        stride: Distance between neighbouring patches in pixels.
        partial: Whether pixels that fill no patch are ignored. Otherwise they count as
            a patch.
    """
    if partial:
        return whole_patches(image_size, stride)
    height, width = whole_patches([-side for side in image_size], stride)
    return -height, -width


class Size(tuple[int, int]):
    """(height, width) of images in pixels; (None, None) for images of any size."""

    @classmethod
    def of(
        cls, value: Any, name: str = "image_size", *, any_size: bool = False
    ) -> "Size":
        """Checks one side or (height, width) and returns both.

        Args:
            value: An int for a square, or both sides, each in [1, `MAX_SIDE`].
            name: Name of the argument.
            any_size: Whether (None, None) is allowed, too; one side may not be None.

        Raises:
            ArgumentError: `value` is none of these.
        """
        if isinstance(value, cls) and (any_size or not value.is_any):
            return value
        try:
            sides = list(value)
        except TypeError:
            sides = [value] * 2
        if any_size and None in sides and value is not None:
            if sides == [None, None]:
                return cls(sides)
            raise ArgumentError(
                f"`{name}` must state both sides, or neither: (None, None) for images "
                f"of any size. Received: {value!r:.200}.",
                name,
            )
        if len(sides) != 2 or isinstance(value, (str, dict)):
            raise ArgumentError(
                f"`{name}` must be an integer or (height, width), in pixels. Received: "
                f"{value!r:.200}.",
                name,
            )
        return cls(integer(name, side, 1, MAX_SIDE) for side in sides)

    @property
    def is_any(self) -> bool:
        """Whether it is that of models for images of any size."""
        return self[0] is None


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
