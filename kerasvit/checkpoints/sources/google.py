"""Base class of the sources for `.npz` files of vit_jax and big_vision."""

from collections.abc import Set
from typing import Protocol

from .source import Source


class GoogleSource(Source, Protocol):
    """Base class for google-research/vision_transformer and big_vision.

    `kernel` follows vit_jax/checkpoint.py, interpolate_posembed.
    """

    code_base: str = "vision_transformer"
    kernel: str = "corner_linear"

    def short_name(self, name: str) -> str:
        """Returns the name without the prefix of its parameter tree."""
        # A training state contains the weights and the optimizer's moments.
        return name.removeprefix("opt/target/").removeprefix("params/")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        states = ("opt/", "extra/", "chrono/")  # of big_vision/train.py, too
        if name.startswith(states) or name in ("step", "epoch"):
            return "state of the training"
        return None


def dense(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """Returns the rules of a dense or convolution layer."""
    return (
        (f"{name}/kernel", f"{path}/kernel"),
        (f"{name}/bias", f"{path}/bias"),
    )


def norm(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """Returns the rules of a normalisation layer."""
    return (f"{name}/scale", f"{path}/gamma"), (f"{name}/bias", f"{path}/beta")
