"""timm's config.json in one form, whatever wrote it.

Reference: timm/models/_hub.py `_parse_model_cfg`, and for models that transformers
wraps, transformers/models/timm_wrapper/configuration_timm_wrapper.py.
"""

import re

from ..config import Config

# Fields of the evaluation transform. Without any of them nothing is stated.
_TRANSFORM = ("input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std")
# Names before timm had tags; timm maps each with `register_model_deprecations`.
_OLD_NAMES = (
    (r"^(vit_.+)_224_clip_laion2b$", r"\1_clip_224"),
    (r"^vit_base_resnet50_", "vit_base_r50_s16_"),
    (r"^(resnetv2_.+)_bitm?(_in21k|_distilled|_teacher(_384)?)?$", r"\1_bit"),
    (r"^(mixer_.+)_miil(_in21k)?$", r"\1"),
    (r"^(.+)_(in2[12]k|in2[12]ft1k|sam|dino)$", r"\1"),
)


def normalized(config: Config) -> Config:
    """Returns a configuration of timm in the present form; another one unchanged.

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
