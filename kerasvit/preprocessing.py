"""How an image becomes a model's input: the evaluation transform of its weights."""

import dataclasses
import math
import numbers
import operator
from typing import Any

import numpy as np
from PIL import Image

from .images import read_image
from .layers.resampling import resample_grid
from .origins import IMAGENET, ORIGINS

# The filters that every Pillow has, by its numbers, which transformers' files use.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
MODES = ("center", "squash", "border")

# No side beyond this, and no resized image beyond its square: a strip of 10 × 90,000
# pixels, or a hostile config, would otherwise ask for gigabytes.
_MAX_SIDE = 16384

_HALF = (0.5, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Prepares an image the way a model's weights were evaluated: resize, crop, scale.

    The defaults are those of timm's ViTs. `Preprocessing(224)("cat.jpg")` is a
    (224, 224, 3) float32 array.

    Args:
        size: (height, width) of the result, or one number for a square; 1 to 16384.
        crop: Share of the resized image's side that is kept, 0.01 to 1.
        mode: "center": the short side becomes size / crop, then a crop from the
            centre. "squash": both sides become size / crop, whatever the aspect, then
            the crop. "border": the long side becomes size / crop, then a crop, or a
            border in the colour of `mean`.
        kernel: "nearest", "box", "bilinear", "hamming", "bicubic" or "lanczos".
        antialias: True: as Pillow. False: as tf.image.resize in Google's code, for
            the kernel "bilinear" only.
        mean: Of the three colours, in images of values 0 to 1; or one for all three.
        std: Deviation of the same, above 0.

    Raises:
        ValueError: A field is out of range.

    Reference: timm/data/transforms_factory.py `transforms_imagenet_eval`, equal to the
    bit; vit_jax/input_pipeline.py, within 1e-5.
    """

    size: tuple[int, int]
    crop: float = 0.9
    mode: str = "center"
    kernel: str = "bicubic"
    antialias: bool = True
    mean: tuple[float, float, float] = _HALF
    std: tuple[float, float, float] = _HALF

    def __post_init__(self):
        checked = {
            "size": _size(self.size),
            "crop": _numbers("crop", self.crop, 1, 0.01, 1)[0],
            "mode": _one_of("mode", self.mode, MODES),
            "kernel": _one_of("kernel", self.kernel, KERNELS),
            "antialias": _one_of("antialias", self.antialias, (True, False)),
            "mean": _numbers("mean", self.mean, 3, -1000, 1000),
            "std": _numbers("std", self.std, 3, 1e-6, 1000),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not self.antialias and self.kernel != "bilinear":
            raise ValueError(
                "`antialias=False` is tf.image.resize's bilinear kernel: take "
                "`kernel='bilinear'` with it, or `antialias=True`. Received: "
                f"kernel={self.kernel!r}."
            )

    def __call__(self, image: Any, *, normalize: bool = True) -> np.ndarray:
        """Prepares one image.

        Args:
            image: Path, PIL image, or array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)
                of values 0 to 255. Grey, palette and transparent images become RGB;
                a photo is turned as its camera was held.
            normalize: False leaves values at 0 to 255, for a model with the
                normalisation built in.

        Returns:
            (height, width, 3) array, float32.

        Raises:
            ValueError: It cannot be read as an image; says which and what to do.
        """
        image = read_image(image)
        height, width = self._resized(image.height, image.width)
        if height * width > _MAX_SIDE**2:
            raise ValueError(
                f"An image of {image.height} × {image.width} pixels would become "
                f"{height} × {width} before its crop to {self.size}. Crop it to a "
                "less narrow shape first, or use a smaller `size`."
            )
        if self.antialias:
            kernel = Image.Resampling(KERNELS.index(self.kernel))
            pixels = np.asarray(image.resize((width, height), kernel))
        else:
            pixels = np.asarray(image, "float32")
            pixels = resample_grid(pixels, (height, width), "bilinear")
        pixels = self._cropped(pixels)
        if not normalize:
            return pixels
        mean, std = np.float32(self.mean), np.float32(self.std)
        return (pixels / np.float32(255) - mean) / std

    def _resized(self, height, width):
        """(height, width) of the resized image, rounded as timm and torchvision do."""
        target = [math.floor(side / self.crop) for side in self.size]
        if self.mode == "squash":
            return target
        if self.mode == "center" and target[0] == target[1]:
            short = min(height, width)
            return [int(target[0] * side / short) for side in (height, width)]
        choose = max if self.mode == "border" else min
        ratio = choose(height / target[0], width / target[1])
        return [max(round(side / ratio), 1) for side in (height, width)]

    def _cropped(self, pixels):
        out = np.empty((*self.size, 3), "float32")
        out[:] = [min(max(round(255 * mean), 0), 255) for mean in self.mean]
        kept, place = zip(*map(_window, pixels.shape, self.size), strict=True)
        out[place] = pixels[kept]
        return out

    def with_size(self, size: int | tuple[int, int]) -> "Preprocessing":
        """The same for another image size."""
        return dataclasses.replace(self, size=size)

    def to_config(self) -> dict:
        """The fields as plain JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_config(cls, config: dict) -> "Preprocessing":
        """Reads what `to_config` wrote."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(config, dict) or set(config) != names:
            raise ValueError(
                f"A preprocessing config must be a dict of {', '.join(sorted(names))}, "
                f"as `to_config` writes it. Received: {config!r:.500}."
            )
        return cls(**config)

    @classmethod
    def of_origin(cls, origin, size, **fields) -> "Preprocessing":
        """What one of `ORIGINS` evaluates with, when a bare file says nothing else.

        Args:
            origin: A key of `ORIGINS`.
            size: (height, width), or one number for a square.
            **fields: Those that differ from the origin's.
        """
        made = ORIGINS[_one_of("origin", origin, tuple(ORIGINS))]
        return cls(size, **{**made, **fields})

    @classmethod
    def from_timm(cls, config: dict) -> "Preprocessing":
        """Reads timm's `pretrained_cfg`; gaps are filled as timm does.

        Reference: timm/data/config.py `resolve_data_config`.
        """
        config = _dict("A timm config", config)
        size = config.get("input_size") or (3, 224, 224)
        if not isinstance(size, (list, tuple)) or len(size) != 3 or size[0] != 3:
            raise ValueError(
                "`input_size` of a timm config must be (3, height, width); other than "
                f"three channels are not supported. Received: {size!r}."
            )
        return cls(
            size=tuple(size[1:]),
            crop=config.get("crop_pct") or 0.875,
            mode=config.get("crop_mode") or "center",
            kernel=config.get("interpolation") or "bicubic",
            mean=config.get("mean") or IMAGENET["mean"],
            std=config.get("std") or IMAGENET["std"],
        )

    def to_timm(self) -> dict:
        """The keys of timm's `pretrained_cfg`, which has none for `antialias`."""
        config = self.to_config()
        return {
            "input_size": [3, *config["size"]],
            "interpolation": config["kernel"],
            "crop_pct": config["crop"],
            "crop_mode": config["mode"],
            "mean": config["mean"],
            "std": config["std"],
        }

    @classmethod
    def from_transformers(cls, config: dict) -> "Preprocessing":
        """Reads a `preprocessor_config.json` of transformers.

        Gaps are filled as its ViT image processor does.

        Reference: transformers/models/vit/image_processing_vit.py.
        """
        config = _dict("A preprocessor config", config)
        resized, mode = config.get("size") or 224, "squash"
        if isinstance(resized, dict) and "shortest_edge" in resized:
            resized, mode = resized["shortest_edge"], "center"
        resized = size = _size(resized)
        if config.get("do_center_crop"):
            size = _size(config.get("crop_size") or 224)
        # They normalise value × factor; here it is value / 255.
        scaled = config.get("do_rescale", True)
        factor = config.get("rescale_factor", 1 / 255) if scaled else 1
        unit = 255 * _numbers("rescale_factor", factor, 1, 1e-4, 1)[0]
        mean, std = 0, 1
        if config.get("do_normalize", True):
            mean, std = config.get("image_mean", 0.5), config.get("image_std", 0.5)
        number = config.get("resample", 2)
        return cls(
            size=size,
            crop=_share(size, resized),
            mode=mode,
            kernel=KERNELS[_one_of("resample", number, tuple(range(len(KERNELS))))],
            mean=[value / unit for value in _numbers("image_mean", mean, 3, -255, 255)],
            std=[value / unit for value in _numbers("image_std", std, 3, 1e-6, 255)],
        )


def _dict(name, config):
    if not isinstance(config, dict):
        raise ValueError(f"{name} must be a dict. Received: {config!r:.100}.")
    return config


def _window(have, want):
    """What is kept of a side, its centre, and where it goes; rounded as torchvision."""
    if have >= want:
        start = round((have - want) / 2)
        return slice(start, start + want), slice(0, want)
    start = (want - have) // 2
    return slice(0, have), slice(start, start + have)


def _share(size, resized):
    """The `crop` that leads from `size` to exactly the `resized` sides."""
    for crop in (size[0] / resized[0], size[0] / (resized[0] + 0.5)):
        if [math.floor(side / crop) for side in size] == list(resized):
            return crop
    raise ValueError(
        "The crop of a preprocessor config must keep the same share of both sides. "
        f"Received: size={resized}, crop_size={size}."
    )


def _size(size):
    if isinstance(size, dict):  # transformers
        size = (size.get("height"), size.get("width"))
    sides = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    try:
        checked = tuple(operator.index(side) for side in sides)
    except TypeError:
        checked = ()
    if len(checked) != 2 or not all(1 <= side <= _MAX_SIDE for side in checked):
        raise ValueError(
            "`size` must be (height, width) or one number, in whole pixels between 1 "
            f"and {_MAX_SIDE}. Received: {size!r:.100}."
        )
    return checked


def _numbers(name, value, count, low, high):
    values = [value] * count if isinstance(value, numbers.Real) else value
    if (
        not isinstance(values, (list, tuple, np.ndarray))
        or len(values) != count
        or not all(isinstance(v, numbers.Real) and low <= v <= high for v in values)
    ):
        many = "a number" if count == 1 else f"a number or {count} numbers"
        raise ValueError(
            f"`{name}` must be {many} between {low} and {high}. Received: "
            f"{value!r:.100}."
        )
    return tuple(float(v) for v in values)


def _one_of(name, value, options):
    if not isinstance(value, type(options[0])) or value not in options:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, options))}. Received: "
            f"{value!r:.100}."
        )
    return value
