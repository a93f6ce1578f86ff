"""Base class of the sources for timm's files and their `config.json`."""

import re
from typing import Any, Protocol

from kerasvit.arguments import Size

from ..config import Config
from ..key_map import KeyMap
from .source import Source

# Fields of the evaluation transform. Without any of them nothing is stated.
_TRANSFORM = ("input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std")
# Names before timm had tags; timm maps each with `register_model_deprecations`.
_OLD_NAMES = (
    (r"^(vit_.+)_224_clip_laion2b$", r"\1_clip_224"),
    (r"^vit_base_resnet50_", "vit_base_r50_s16_"),
    (r"^(resnetv2_.+)_bitm?(_in21k|_distilled|_teacher(_384)?)?$", r"\1_bit"),
    (r"^(?:tv|ig|ssl|swsl|gluon)_(resn(?:e|ex)t.+)$", r"\1"),
    (r"^(resnet\d+)_v1b?([cds]?)$", r"\1\2"),
    (r"^(mixer_.+)_miil(_in21k)?$", r"\1"),
    (r"^(.+)_(in2[12]k|in2[12]ft1k|sam|dino)$", r"\1"),
)


class TimmSource(Source, Protocol):
    """A source of timm's files; models can also be saved as timm's.

    A subclass writes the methods of `Source`, `differs` and `config_of`.

    `kernel` follows timm/layers/pos_embed.py, resample_abs_pos_embed.
    """

    code_base: str = "timm"
    kernel: str = "bicubic_antialias"

    def named(self, config: Config) -> bool:
        """Returns whether the configuration names a model of this source alone."""
        return False

    def module_map(self, record: dict[str, Any]) -> KeyMap | None:
        return None if self.differs(record) else self.key_map(record["kwargs"])

    def differs(self, record: dict[str, Any]) -> str | None:
        """Returns in words what timm cannot build of the model; None if nothing.

        Args:
            record: `ImageModel.record`.
        """
        ...

    def config(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Returns timm's config.json for a model; None where it `differs`."""
        if self.differs(record):
            return None
        config = self.config_of(record["kwargs"])
        channels = record["kwargs"].get("channels", 3)
        if channels != 3:
            config["model_args"]["in_chans"] = channels
        return config

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns timm's config.json for a model that does not differ.

        Args:
            kwargs: Arguments of the builder.
        """
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


def image_size(config: Config) -> Size | None:
    """Returns (height, width) from the arguments of timm's model, or None."""
    return model_args(config).image_size("img_size")


def input_size(config: Config) -> Size | None:
    """Returns (height, width) of timm's evaluation images, or None."""
    pretrained = config.part("pretrained_cfg")
    size = pretrained.get("input_size")
    if isinstance(size, (list, tuple)):
        return Config(input_size=list(size[1:])).image_size("input_size")
    return pretrained.image_size("input_size")


def normalized(config: Config) -> Config:
    """Returns a configuration of timm in the present form; another one unchanged.

    Reference: timm/models/_hub.py `_parse_model_cfg`, and for models that transformers
    wraps, transformers/models/timm_wrapper/configuration_timm_wrapper.py.

    In the present form `architecture` is a name of timm without a tag, `pretrained_cfg`
    contains the evaluation transform, and `label_names` the names of the classes.

    Args:
        config: Content of a config.json.
    """
    if "architecture" not in config or config.get("kerasvit"):
        return config
    config = Config(config)
    stated = "pretrained_cfg" in config
    transform = Config(config.part("pretrained_cfg") if stated else config)
    if stated or any(transform.get(key) for key in _TRANSFORM):
        config["pretrained_cfg"] = transform
    for key, old in (("label_names", "labels"), ("global_pool", "global_pool")):
        found = transform.get(key) or transform.get(old)
        if config.get(key) is None and found is not None:
            config[key] = found
    if config.get("model_type") == "timm_wrapper" and not config.get("label_names"):
        config["label_names"] = config.get("id2label")
    if _numbered(config.names("label_names")):
        del config["label_names"]
    config["architecture"] = present_name(config.text("architecture"))
    return config


def present_name(name: str) -> str:
    """Returns the name that timm has today for an architecture, without a tag."""
    name = name.split(".")[0]
    for old, new in _OLD_NAMES:
        name = re.sub(old, new, name)
    return name


def _numbered(names: object) -> bool:
    """Returns whether the names are those that transformers gives without any."""
    return isinstance(names, list) and names == [
        f"LABEL_{i}" for i in range(len(names))
    ]
