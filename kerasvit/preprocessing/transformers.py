"""Converts the image processors of transformers to `Preprocessing`.

Reference: transformers/models/{vit,deit,bit,clip,siglip}/image_processing_*.py.
"""

import math
import re
from typing import Any

from kerasvit.arguments import Size, number_of_each, one_of

from .defaults import IMAGENET, KERNELS, STATE_IT

_HALF = {"image_mean": 0.5, "image_std": 0.5}
_CLIP = {
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
# Defaults of the image processors, by the beginning of their names.
_PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": {"size": 224, "resample": 2, **_HALF},
    "DeiT": {"size": 256, "do_center_crop": True, "resample": 3, **_HALF},
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Siglip": {"size": {"height": 224, "width": 224}, "resample": 3, **_HALF},
}
# The models of DINOv2 have Bit's processor with these values, as facebook/dinov2-base.
_DINOV2 = {
    **_CLIP,
    "size": {"shortest_edge": 256},
    "image_mean": [*IMAGENET["mean"]],
    "image_std": [*IMAGENET["std"]],
}
_DEFAULTS = {**_PROCESSORS, "Dinov2": _DINOV2}
# Processors of which one number as `size` is the short side.
_SHORT_SIDE = ("Bit", "CLIP", "Siglip", "Dinov2")
_NAMES = rf"({'|'.join(_PROCESSORS)})(ImageProcessor|FeatureExtractor)(Fast|Pil)?"
_OF_MODELS = {  # other models of this package: "ViT"
    "deit": "DeiT",
    "bit": "Bit",
    **dict.fromkeys(("dinov2", "dinov2_with_registers"), "Dinov2"),
    **dict.fromkeys(("clip", "clip_vision_model"), "CLIP"),
    **dict.fromkeys(("siglip", "siglip_vision_model"), "Siglip"),
}

# Options of other image processors, which are not implemented.
_UNSUPPORTED = (
    "crop_pct",
    "do_pad",
    "do_flip_channel_order",
    "size_divisor",
    "rescale_offset",
)


def fields(config: dict[str, Any], model_type: str | None = None) -> dict[str, Any]:
    """Returns the fields of `Preprocessing` for a `preprocessor_config.json`.

    Args:
        config: Content of the file.
        model_type: `model_type` of `config.json`; it determines the processor if the
            file does not name it.

    Raises:
        ValueError: An option is not implemented, or a value is invalid.
    """
    kind = _kind(config, model_type)
    # transformers 5 writes null for the default of the processor's class.
    stated = {key: value for key, value in config.items() if value is not None}
    config = {**_DEFAULTS[kind], **stated}
    other = {key: config[key] for key in _UNSUPPORTED if config.get(key)}
    if not config.get("do_resize", True):
        other["do_resize"] = config["do_resize"]
    if other:
        raise ValueError(f"An image processor with {other} is not built. {STATE_IT}")
    resized, mode = config["size"], "squash"
    if isinstance(resized, dict) and [*resized] == ["shortest_edge"]:
        resized, mode = resized["shortest_edge"], "center"
    elif isinstance(resized, int) and kind in _SHORT_SIDE:
        mode = "center"
    resized = size = _sides("size", resized)
    if config.get("do_center_crop"):
        size = _sides("crop_size", config.get("crop_size", 224))
    mean, std = _colours(config)
    numbers = tuple(range(len(KERNELS)))
    return {
        "size": size,
        "crop": _share(size, resized),
        "mode": mode,
        "kernel": KERNELS[one_of("resample", config["resample"], numbers)],
        "mean": mean,
        "std": std,
    }


def _sides(name: str, value: Any) -> Size:
    """Returns (height, width) of a dict, a pair or one number."""
    if isinstance(value, dict) and {"height", "width"} <= value.keys():
        value = [value["height"], value["width"]]
    return Size.of(value, name)


def _colours(config: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Returns mean and standard deviation for values from 0 to 1."""
    # transformers normalises value × factor, `Preprocessing` value / 255.
    scaled = config.get("do_rescale", True)
    factor = config.get("rescale_factor", 1 / 255) if scaled else 1
    unit = 255 * number_of_each("rescale_factor", factor, 1, 1e-4, 1)[0]
    mean: Any = 0
    std: Any = 1
    if config.get("do_normalize", True):
        mean, std = config["image_mean"], config["image_std"]
    return (
        [value / unit for value in number_of_each("image_mean", mean, 3, -255, 255)],
        [value / unit for value in number_of_each("image_std", std, 3, 1e-6, 255)],
    )


def _kind(config: dict[str, Any], model_type: str | None) -> str:
    keys = ("image_processor_type", "feature_extractor_type")
    processor = next((config[key] for key in keys if config.get(key)), None)
    if processor is None:
        return _OF_MODELS.get(model_type or "", "ViT")
    if known := re.fullmatch(_NAMES, str(processor)):
        return known[1]
    # Other processors have steps that their files do not mention.
    raise ValueError(
        "The image processors of transformers that are built are those of "
        f"{', '.join(_PROCESSORS)}. Received: {processor!r:.100}. {STATE_IT}"
    )


def _share(size: Size, resized: Size) -> float:
    """Returns the `crop` for which `size` / `crop` is exactly `resized`."""
    for crop in (size[0] / resized[0], size[0] / (resized[0] + 0.5)):
        if Size(math.floor(side / crop) for side in size) == resized:
            return crop
    raise ValueError(
        "The crop of a preprocessor config must keep the same share of both sides. "
        f"Received: size={tuple(resized)}, crop_size={tuple(size)}."
    )
