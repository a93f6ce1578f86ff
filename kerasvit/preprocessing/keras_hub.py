"""Converts the image converters of keras-hub to `Preprocessing`.

Reference: keras_hub/src/layers/preprocessing/image_converter.py.
"""

from typing import Any

from kerasvit.arguments import Size, number_of_each

from .defaults import STATE_IT


def fields(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of `Preprocessing` for the `config` of a converter.

    keras-hub crops to the shape of the image before it resizes, `Preprocessing` after.

    Args:
        config: Arguments of an `ImageConverter`.

    Raises:
        ValueError: An option is not implemented, or a value is invalid.
    """
    antialias = config.get("antialias", False)
    kernel = config.get("interpolation", "bilinear")
    if config.get("pad_to_aspect_ratio") or not config.get("image_size"):
        raise ValueError(
            "An image converter that pads images or does not resize them is not built. "
            + STATE_IT
        )
    if not (antialias or kernel == "bilinear"):
        raise ValueError(
            f"An image converter with interpolation={kernel!r:.100} and without "
            f"antialiasing is not built. {STATE_IT}"
        )
    scale, offset = config.get("scale"), config.get("offset")
    scales = number_of_each("scale", 1 if scale is None else scale, 3, 1e-9, 1e6)
    offsets = number_of_each("offset", 0 if offset is None else offset, 3, -1e6, 1e6)
    std = [1 / (255 * each) for each in scales]
    return {
        "size": Size.of(config["image_size"]),
        "crop": 1.0,
        "mode": "center" if config.get("crop_to_aspect_ratio", True) else "squash",
        "kernel": kernel,
        "antialias": bool(antialias),
        "mean": [-each * s for each, s in zip(offsets, std, strict=True)],
        "std": std,
    }
