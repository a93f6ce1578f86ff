"""Figures of matplotlib, which is an optional dependency, and images in them."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError


def new_figure(width: float, height: float) -> Any:
    """Returns an empty `matplotlib.figure.Figure`, size in inches.

    It does not belong to pyplot: nothing opens a window, and nothing needs closing.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: pip install matplotlib. The numbers themselves are "
            "in the result."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def as_rgb(
    image: Any, bands: Sequence[int] | None = None, *, stretch: bool = True
) -> np.ndarray:
    """Returns an image of any number of channels as one to be drawn.

    The values of three channels are stretched together from their whole range to 0…1.
    Of other images those of each drawn channel are, from its percentiles 2 to 98: a few
    bright pixels would make all others black.

    Args:
        image: (H, W, C), pixels of any range.
        bands: Numbers of the channels, from 0, that are red, green and blue, such as
            (3, 2, 1) of Sentinel-2; or of one that is grey. None: the first three, or
            of one or two channels the first.
        stretch: False: the values are those of the image.

    Returns:
        (H, W, 3), float64.

    Raises:
        ArgumentError: `bands` are not one or three of the channels.
    """
    image = np.asarray(image, "float64")
    channels, as_it_is = image.shape[-1], bands is None and image.shape[-1] == 3
    bands = range(3 if channels > 2 else 1) if bands is None else [*bands]
    known = all(isinstance(i, Integral) and 0 <= i < channels for i in bands)
    if len(bands) not in (1, 3) or not known:
        raise ArgumentError(
            f"`bands` must be three channels, or one, from 0 to {channels - 1}. "
            f"Received: {bands!r:.100}.",
            "bands",
        )
    image = image[..., list(bands)]
    if stretch and as_it_is:
        low, high = image.min(), image.max()
        image = (image - low) / (high - low or 1)
    elif stretch:
        low, high = np.percentile(image, (2, 98), axis=(0, 1))
        image = ((image - low) / np.where(high > low, high - low, 1)).clip(0, 1)
    return np.repeat(image, 3, axis=-1) if len(bands) == 1 else image
