"""Flax names that all `.npz` files of vit_jax and big_vision share."""

from collections.abc import Set
from typing import Protocol

from .source import Source


class GoogleSource(Source, Protocol):
    """A source of google-research/vision_transformer and big_vision.

    `kernel` follows vit_jax/checkpoint.py, interpolate_posembed.
    """

    code_base: str = "vision_transformer"
    kernel: str = "corner_linear"

    def short_name(self, name: str) -> str:
        """Returns the name without the tree that it was saved in."""
        # A training state keeps the weights beside the optimiser's moments.
        return name.removeprefix("opt/target/").removeprefix("params/")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        states = ("opt/state/", "opt/", "extra/")
        if name.startswith(states) or name in ("step", "epoch"):
            return "state of the optimiser"
        return None


def dense(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """Returns the rules of a dense layer or convolution."""
    return (
        (f"{name}/kernel", f"{path}/kernel"),
        (f"{name}/bias", f"{path}/bias"),
    )


def norm(name: str, path: str) -> tuple[tuple[str, str], ...]:
    """Returns the rules of a normalisation."""
    return (f"{name}/scale", f"{path}/gamma"), (f"{name}/bias", f"{path}/beta")
