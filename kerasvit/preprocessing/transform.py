"""The evaluation transform of a model: resize, crop and normalise."""

import dataclasses
import math
from typing import Any

import numpy as np
from PIL import Image

from kerasvit.arguments import ArgumentError, number_of_each, one_of
from kerasvit.layers.resampling import resample_grid

from . import transformers
from .defaults import IMAGENET, ORIGINS
from .fields import KERNELS, MAX_SIDE, json_object, sides
from .images import read_image

MODES = ("center", "squash", "border")

_HALF = (0.5, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The evaluation transform of a model: resize, crop and normalise an image.

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
            "size": sides(self.size),
            "crop": number_of_each("crop", self.crop, 1, 0.01, 1)[0],
            "mode": one_of("mode", self.mode, MODES),
            "kernel": one_of("kernel", self.kernel, KERNELS),
            "antialias": one_of("antialias", self.antialias, (True, False)),
            "mean": number_of_each("mean", self.mean, 3, -1000, 1000),
            "std": number_of_each("std", self.std, 3, 1e-6, 1000),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not self.antialias and self.kernel != "bilinear":
            raise ArgumentError(
                "`antialias=False` is tf.image.resize's bilinear kernel: take "
                "`kernel='bilinear'` with it, or `antialias=True`. Received: "
                f"kernel={self.kernel!r}.",
                "antialias",
                "kernel",
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
        if height * width > MAX_SIDE**2:
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
        """Returns (height, width) of the resized image, rounded as torchvision does."""
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
        """Returns the transform for another image size."""
        return dataclasses.replace(self, size=size)

    def to_config(self) -> dict:
        """Returns the fields as plain JSON."""
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
        """Returns the default transform of a code base in `ORIGINS`.

        Args:
            origin: A key of `ORIGINS`.
            size: (height, width), or one number for a square.
            **fields: Those that differ from the origin's.
        """
        made = ORIGINS[one_of("origin", origin, tuple(ORIGINS))]
        return cls(size, **{**made, **fields})

    @classmethod
    def from_timm(cls, config: dict) -> "Preprocessing":
        """Reads timm's `pretrained_cfg`; gaps are filled as timm does.

        Reference: timm/data/config.py `resolve_data_config`.
        """
        config = json_object("A timm config", config)
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
        """Returns timm's `pretrained_cfg`, which has no key for `antialias`."""
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
    def from_transformers(cls, config: dict, model_type=None) -> "Preprocessing":
        """Reads a `preprocessor_config.json` of transformers.

        A centre crop can lie one pixel beside theirs: they round its place down, timm,
        torchvision and this class to the nearest.

        Args:
            config: The file's content; gaps are filled as the processor does that it
                names. One that is not known here is refused.
            model_type: The word for the model in its `config.json`, for a file that
                names no processor; None: ViT's.
        """
        config = json_object("A preprocessor config", config)
        return cls(**transformers.fields(config, model_type))


def _window(have, want):
    """Returns source and target slices of a centre crop, rounded as torchvision."""
    if have >= want:
        start = round((have - want) / 2)
        return slice(start, start + want), slice(0, want)
    start = (want - have) // 2
    return slice(0, have), slice(start, start + have)
