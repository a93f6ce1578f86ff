"""Base class of the sources for timm's files and their `config.json`."""

from typing import Any, Protocol

from ..config import Config
from .source import Source


class TimmSource(Source, Protocol):
    """A source of timm's files; models can also be saved as timm's.

    A subclass writes the methods of `Source` and the two below.

    `kernel` follows timm/layers/pos_embed.py, resample_abs_pos_embed.
    """

    code_base: str = "timm"
    kernel: str = "bicubic_antialias"

    def differs(self, record: dict[str, Any]) -> str | None:
        """Returns in words what timm cannot build of the model; None if nothing.

        Args:
            record: `ImageModel.record`.
        """
        ...

    def config(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Returns timm's config.json for a model; None where it `differs`."""
        ...


def differing(kwargs: dict[str, Any], known: dict[str, Any]) -> str | None:
    """Returns a text on arguments with values that timm does not support, or None.

    Args:
        kwargs: Arguments of the builder.
        known: {argument: values that timm supports}.
    """
    wrong = []
    resampling = kwargs.get("resampling") or {}
    kernel = resampling.get("kernel", TimmSource.kernel)
    if kernel != TimmSource.kernel:
        wrong.append(
            f"its kernel of resampling is {kernel!r}, timm's {TimmSource.kernel!r}"
        )
    if resampling and kwargs.get("partial_patches"):
        wrong.append(
            "it takes images of any size with partial patches, timm's with whole"
        )
    for key, values in known.items():
        if kwargs[key] not in values:
            allowed = " or ".join(dict.fromkeys(map(repr, values)))
            wrong.append(f"its {key} is {kwargs[key]!r}, timm's {allowed}")
    return "; ".join(wrong) or None


def ratio(mlp_dim: int, width: int) -> float:
    """Returns the `mlp_ratio` from which timm computes the MLP's hidden size."""
    # timm truncates the product to an integer, which rounding can reduce by one.
    ratio = mlp_dim / width
    return ratio if int(ratio * width) == mlp_dim else (mlp_dim + 0.5) / width


def cfg(
    first_conv: str, classifier: str | list[str], fixed_input_size: bool = True
) -> dict[str, Any]:
    """Returns the fields with which timm adapts channels, classes and image sizes."""
    return {
        "first_conv": first_conv,
        "classifier": classifier,
        "fixed_input_size": fixed_input_size,
    }


def model_args(config: Config) -> Config:
    """Returns the arguments of timm's model in the configuration."""
    return config.part("model_args")


def image_size(config: Config) -> tuple[int, int] | None:
    """Returns (height, width) from the arguments of timm's model, or None."""
    return model_args(config).image_size("img_size")


def input_size(config: Config) -> tuple[int, int] | None:
    """Returns (height, width) of timm's evaluation images, or None."""
    pretrained = config.part("pretrained_cfg")
    size = pretrained.get("input_size")
    if isinstance(size, (list, tuple)):
        return Config(input_size=list(size[1:])).image_size("input_size")
    return pretrained.image_size("input_size")
