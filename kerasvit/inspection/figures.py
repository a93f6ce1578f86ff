"""Figures of matplotlib, which is an optional dependency."""

from typing import Any

import numpy as np


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


def shown(image: np.ndarray, *, stretch: bool = True) -> np.ndarray:
    """Returns an image (H, W, 1 or 3) for `imshow`, with values in [0, 1].

    Args:
        image: Pixels of any range.
        stretch: Whether the range is stretched to [0, 1].
    """
    image = np.asarray(image, "float64")
    if stretch:
        low, high = image.min(), image.max()
        image = (image - low) / (high - low or 1)
    return np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image
