"""Checks of the fields of `Preprocessing`."""

import operator
from typing import Any

from kerasvit.arguments import ArgumentError

# Pillow's filters in the order of its numbers, which transformers' files contain.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")

# Largest side of an image; a resized image has at most its square of pixels. A strip of
# 10 × 90,000 pixels, or a hostile config, would otherwise need gigabytes.
MAX_SIDE = 16384


def sides(size: Any) -> tuple[int, int]:
    """Returns (height, width) of a side, a pair, or a dict of transformers.

    Raises:
        ArgumentError: `size` is none of them, or out of range.
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
    return checked[0], checked[1]


def json_object(name: str, config: Any) -> dict[str, Any]:
    """Checks that a configuration is a dict, and returns it.

    Raises:
        ArgumentError: `config` is not a dict.
    """
    if not isinstance(config, dict):
        raise ArgumentError(f"{name} must be a dict. Received: {config!r:.100}.", name)
    return config
