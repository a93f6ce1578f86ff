"""The argument `normalization` of builders: mean and deviation inside a model."""

from typing import Any

from kerasvit.arguments import ArgumentError

from .transform import Preprocessing


def mean_and_std(normalization: Any) -> dict | None:
    """Checks the argument `normalization`; returns it as plain JSON.

    Args:
        normalization: {"mean": ..., "std": ...} of pixels in 0…1, one number or three
            each, or None.

    Raises:
        ArgumentError: It is neither.
    """
    if normalization is None:
        return None
    if not isinstance(normalization, dict) or set(normalization) != {"mean", "std"}:
        raise ArgumentError(
            '`normalization` must be {"mean": ..., "std": ...}, of pixels in 0…1, or '
            f"None. Received: {normalization!r}.",
            "normalization",
        )
    # The transform validates both; its size does not matter.
    return normalization_of(Preprocessing(1, **normalization))


def normalization_of(transform: Preprocessing) -> dict:
    """Returns the argument `normalization` that does what a transform does."""
    config = transform.to_config()
    return {key: config[key] for key in ("mean", "std")}
