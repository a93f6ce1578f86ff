"""What Transformers have in common whose stages halve the map and double channels."""

from typing import Any

from kerasvit.arguments import ArgumentError, number

from .checks import integer, integers


def mlp_dim(channels: int, ratio: float) -> int:
    """Returns the hidden size of the MLPs of a stage."""
    # Rounded down, as in timm; the summand allows for a ratio that was rounded.
    return int(channels * ratio + 1e-6)


def check_stages(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments after checks of patches, heads and MLPs.

    Args:
        kwargs: Arguments with `patch_size`, a square's, `width`, `depths`, `num_heads`
            and `mlp_ratio`.

    Raises:
        ArgumentError: One is out of its range, or heads do not divide their channels.
    """
    checked, stages = dict(kwargs), len(kwargs["depths"])
    checked["patch_size"] = integer("patch_size", kwargs["patch_size"], 1)
    checked["num_heads"] = integers("num_heads", kwargs["num_heads"], stages, 1)
    for stage, heads in enumerate(checked["num_heads"]):
        if checked["width"] * 2**stage % heads:
            raise ArgumentError(
                f"`num_heads` must divide the stages' channels, `width` "
                f"{checked['width']} doubled {stages - 1} times. Received: "
                f"{kwargs['num_heads']!r}.",
                "num_heads",
                "width",
            )
    ratio = number("mlp_ratio", kwargs["mlp_ratio"], 0)
    if not mlp_dim(checked["width"], ratio):
        raise ArgumentError(
            "`mlp_ratio` must leave the MLPs a hidden size. Received: "
            f"{kwargs['mlp_ratio']!r}, for {checked['width']} channels.",
            "mlp_ratio",
        )
    checked["mlp_ratio"] = ratio
    return checked
