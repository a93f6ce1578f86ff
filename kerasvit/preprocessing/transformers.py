"""Converts the image processors of transformers to `Preprocessing`.

Reference: transformers/models/{vit,deit,bit,clip,siglip}/image_processing_*.py.
"""

import math
import re

from kerasvit.arguments import number_of_each, one_of

from .fields import KERNELS, sides

_HALF = {"image_mean": 0.5, "image_std": 0.5}
_CLIP = {
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
# By the beginning of their names: what they do where a file does not say.
_PROCESSORS = {
    "ViT": {"size": 224, "resample": 2, **_HALF},
    "DeiT": {"size": 256, "do_center_crop": True, "resample": 3, **_HALF},
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Siglip": {"size": {"height": 224, "width": 224}, "resample": 3, **_HALF},
}
_SHORT_SIDE = ("Bit", "CLIP", "Siglip")  # one number for `size` is the short side's
_NAMES = rf"({'|'.join(_PROCESSORS)})(ImageProcessor|FeatureExtractor)(Fast|Pil)?"
_OF_MODELS = {"deit": "DeiT", "bit": "Bit"}  # others of ours have ViT's

# What others of theirs do besides: of these, not even where a file asks for it.
_UNBUILT = (
    "crop_pct",
    "do_pad",
    "do_flip_channel_order",
    "size_divisor",
    "rescale_offset",
)
_STATE_IT = (
    "State the preprocessing in the call: `preprocessing=kerasvit.Preprocessing(...)`."
)


def fields(config, model_type=None):
    """Returns the fields of `Preprocessing` for a `preprocessor_config.json`.

    Args:
        config: Its content.
        model_type: The word for the model in `config.json`, which decides where the
            file does not name its processor.

    Raises:
        ValueError: It asks for what is not built, or for nonsense.
    """
    kind = _kind(config, model_type)
    config = {**_PROCESSORS[kind], **config}
    other = {key: config[key] for key in _UNBUILT if config.get(key)}
    if not config.get("do_resize", True):
        other["do_resize"] = config["do_resize"]
    if other:
        raise ValueError(f"An image processor with {other} is not built. {_STATE_IT}")
    resized, mode = config["size"], "squash"
    if isinstance(resized, dict) and [*resized] == ["shortest_edge"]:
        resized, mode = resized["shortest_edge"], "center"
    elif isinstance(resized, int) and kind in _SHORT_SIDE:
        mode = "center"
    resized = size = sides(resized)
    if config.get("do_center_crop"):
        size = sides(config.get("crop_size", 224))
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


def _colours(config):
    """Returns mean and standard deviation for values from 0 to 1."""
    # They normalise value × factor; here it is value / 255.
    scaled = config.get("do_rescale", True)
    factor = config.get("rescale_factor", 1 / 255) if scaled else 1
    unit = 255 * number_of_each("rescale_factor", factor, 1, 1e-4, 1)[0]
    mean, std = 0, 1
    if config.get("do_normalize", True):
        mean, std = config["image_mean"], config["image_std"]
    return (
        [value / unit for value in number_of_each("image_mean", mean, 3, -255, 255)],
        [value / unit for value in number_of_each("image_std", std, 3, 1e-6, 255)],
    )


def _kind(config, model_type):
    keys = ("image_processor_type", "feature_extractor_type")
    processor = next((config[key] for key in keys if config.get(key)), None)
    if processor is None:
        return _OF_MODELS.get(model_type, "ViT")
    if known := re.fullmatch(_NAMES, str(processor)):
        return known[1]
    # Others have steps that their files do not name.
    raise ValueError(
        "The image processors of transformers that are built are those of "
        f"{', '.join(_PROCESSORS)}. Received: {processor!r:.100}. {_STATE_IT}"
    )


def _share(size, resized):
    """Returns the `crop` for which `size` is resized to exactly `resized`."""
    for crop in (size[0] / resized[0], size[0] / (resized[0] + 0.5)):
        if [math.floor(side / crop) for side in size] == list(resized):
            return crop
    raise ValueError(
        "The crop of a preprocessor config must keep the same share of both sides. "
        f"Received: size={resized}, crop_size={size}."
    )
