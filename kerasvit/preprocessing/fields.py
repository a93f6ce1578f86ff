"""Checks of the fields of `Preprocessing`."""

import operator

from kerasvit.arguments import ArgumentError

# The filters that every Pillow has, by its numbers, which transformers' files use.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")

# No side beyond this, and no resized image beyond its square: a strip of 10 × 90,000
# pixels, or a hostile config, would otherwise ask for gigabytes.
MAX_SIDE = 16384


def sides(size):
    """Returns (height, width) of a side, a pair, or a dict of transformers.

    Raises:
        ArgumentError: It is none of them, or out of range.
    """
    both = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    if isinstance(size, dict):  # transformers
        both = size.get("height"), size.get("width")
    try:
        checked = tuple(operator.index(side) for side in both)
    except TypeError:
        checked = ()
    if len(checked) != 2 or not all(1 <= side <= MAX_SIDE for side in checked):
        raise ArgumentError(
            "`size` must be (height, width) or one number, in whole pixels between 1 "
            f"and {MAX_SIDE}. Received: {size!r:.100}.",
            "size",
        )
    return checked


def json_object(name, config):
    """A configuration that must be a dict.

    Raises:
        ArgumentError: It is none.
    """
    if not isinstance(config, dict):
        raise ArgumentError(f"{name} must be a dict. Received: {config!r:.100}.", name)
    return config
