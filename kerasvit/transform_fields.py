"""The checks of a preprocessing's fields."""

import numbers
import operator

import numpy as np

# The filters that every Pillow has, by its numbers, which transformers' files use.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")

# No side beyond this, and no resized image beyond its square: a strip of 10 × 90,000
# pixels, or a hostile config, would otherwise ask for gigabytes.
MAX_SIDE = 16384


def sides(size):
    """(height, width) of a field that is one side, both, or transformers' dict.

    Raises:
        ValueError: It is none of them, or out of range.
    """
    both = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    if isinstance(size, dict):  # transformers
        both = size.get("height"), size.get("width")
    try:
        checked = tuple(operator.index(side) for side in both)
    except TypeError:
        checked = ()
    if len(checked) != 2 or not all(1 <= side <= MAX_SIDE for side in checked):
        raise ValueError(
            "`size` must be (height, width) or one number, in whole pixels between 1 "
            f"and {MAX_SIDE}. Received: {size!r:.100}."
        )
    return checked


def finite(name, value, count, low, high):
    """`count` numbers in [low, high]; one number stands for all.

    Raises:
        ValueError: The field is not that.
    """
    values = [value] * count if isinstance(value, numbers.Real) else value
    if (
        not isinstance(values, (list, tuple, np.ndarray))
        or len(values) != count
        or not all(isinstance(v, numbers.Real) and low <= v <= high for v in values)
    ):
        many = "a number" if count == 1 else f"a number or {count} numbers"
        raise ValueError(
            f"`{name}` must be {many} between {low} and {high}. Received: "
            f"{value!r:.100}."
        )
    return tuple(float(v) for v in values)


def one_of(name, value, options):
    """A field that must be one of `options`, of the type of the first.

    Raises:
        ValueError: It is none of them.
    """
    if not isinstance(value, type(options[0])) or value not in options:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, options))}. Received: "
            f"{value!r:.100}."
        )
    return value


def json_object(name, config):
    """A configuration that must be a dict.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(config, dict):
        raise ValueError(f"{name} must be a dict. Received: {config!r:.100}.")
    return config
