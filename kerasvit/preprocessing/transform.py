"""The evaluation transform of a model: resize, crop and normalise."""

import dataclasses
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from PIL import Image

from kerasvit.arguments import (
    MAX_CHANNELS,
    MAX_SIDE,
    ArgumentError,
    Size,
    integer,
    number_of_each,
    one_of,
)
from kerasvit.layers.resampling import resample_grid

from . import keras_hub, transformers
from .bands import read_bands
from .defaults import IMAGENET, KERNELS, ORIGINS
from .images import read_image

MODES = ("center", "squash", "border")


@dataclasses.dataclass(frozen=True, init=False)
class Preprocessing:
    """The evaluation transform of a model: resize, crop and normalise an image.

    The defaults are those of timm's ViTs. `Preprocessing(224)("cat.jpg")` is a
    (224, 224, 3) float32 array.

    Args:
        size: (height, width) of the result, or one number for a square; 1 to 16384.
        crop: Share of the resized image's side that the crop keeps, 0.01 to 1.
        mode: "center": the short side becomes size / crop, then the centre is cropped.
            "squash": both sides become size / crop, whatever the aspect ratio, then the
            crop. "border": the long side becomes size / crop, then a crop, or a border
            in the colour of `mean`.
        kernel: "nearest", "box", "bilinear", "hamming", "bicubic" or "lanczos".
        antialias: True: as Pillow. False: as tf.image.resize in Google's code, for
            the kernel "bilinear" only.
        mean: Mean of each channel, for values 0 to 1; or one number for all. Their
            number is that of the channels of the image: three colours, if neither
            `mean` nor `std` has another one.
        std: Standard deviation, likewise, > 0.
        value_range: Values of an image that stand for 0 and 1. None: 0 and 255 for
            uint8; also 0 and 65,535 for uint16, and 0 and 1 for floats, of images that
            have not three channels.

    Raises:
        ValueError: A field is out of range.

    Reference: timm/data/transforms_factory.py `transforms_imagenet_eval`, equal to the
    bit; vit_jax/input_pipeline.py, within 1e-5.
    """

    size: tuple[int, int]
    crop: float
    mode: str
    kernel: str
    antialias: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    value_range: tuple[float, float] | None

    def __init__(
        self,
        size: int | Sequence[int],
        crop: float = 0.9,
        mode: str = "center",
        kernel: str = "bicubic",
        antialias: bool = True,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        value_range: Sequence[float] | None = None,
    ) -> None:
        channels = _channels(mean, std)
        checked = {
            "size": Size.of(size, "size"),
            "crop": number_of_each("crop", crop, 1, 0.01, 1)[0],
            "mode": one_of("mode", mode, MODES),
            "kernel": one_of("kernel", kernel, KERNELS),
            "antialias": one_of("antialias", antialias, (True, False)),
            "mean": number_of_each("mean", mean, channels, -1e9, 1e9),
            "std": number_of_each("std", std, channels, 1e-6, 1e9),
            "value_range": _range(value_range),
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
        """Preprocesses one image.

        Args:
            image: Path, PIL image, or array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)
                of values 0 to 255. Grey, palette and transparent images become RGB; a
                photo is rotated by its EXIF orientation. For other than three channels
                see `read_bands`.
            normalize: Whether to normalise; False keeps values 0 to 255, for a model
                with built-in normalisation.

        Returns:
            (height, width, channels) array, float32.

        Raises:
            ValueError: `image` cannot be read as an image.
        """
        if self.channels == 3 and self.value_range is None:
            image = read_image(image)
            sides = image.height, image.width
        else:
            image = read_bands(image, self.channels, self.value_range)
            sides = image.shape[:2]
        height, width = self._resized(*sides)
        if height * width > MAX_SIDE**2:
            raise ValueError(
                f"An image of {sides[0]} × {sides[1]} pixels would become "
                f"{height} × {width} before its crop to {self.size}. Crop it to a "
                "less narrow shape first, or use a smaller `size`."
            )
        if self.antialias:
            kernel = Image.Resampling(KERNELS.index(self.kernel))
            pixels = _resized_by_pillow(image, (width, height), kernel)
        else:
            pixels = np.asarray(image, "float32")
            pixels = resample_grid(pixels, (height, width), "bilinear")
        pixels = self._cropped(pixels)
        if not normalize:
            return pixels
        mean, std = (np.array(each, "float32") for each in (self.mean, self.std))
        return (pixels / np.float32(255) - mean) / std

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Returns (height, width) of the resized image, rounded as torchvision does."""
        tall, wide = (math.floor(side / self.crop) for side in self.size)
        if self.mode == "squash":
            return tall, wide
        if self.mode == "center" and tall == wide:
            short = min(height, width)
            return int(tall * height / short), int(wide * width / short)
        choose = max if self.mode == "border" else min
        ratio = choose(height / tall, width / wide)
        return max(round(height / ratio), 1), max(round(width / ratio), 1)

    def _cropped(self, pixels: np.ndarray) -> np.ndarray:
        out = np.empty((*self.size, self.channels), "float32")
        out[:] = [min(max(round(255 * mean), 0), 255) for mean in self.mean]
        source, target = zip(*map(_window, pixels.shape, self.size), strict=True)
        out[target] = pixels[source]
        return out

    def with_size(self, size: int | tuple[int, int]) -> "Preprocessing":
        """Returns the transform for another image size."""
        fields = {**vars(self), "size": size}
        return Preprocessing(**fields)

    @property
    def channels(self) -> int:
        """Number of channels of the images."""
        return len(self.mean)

    def with_channels(self, channels: int) -> "Preprocessing":
        """Returns the transform for images of another number of channels.

        Mean and standard deviation of each are the averages over the present ones.
        """
        if channels == self.channels:
            return self
        both = {"mean": self.mean, "std": self.std}
        averages = {
            key: [v[0] if len({*v}) == 1 else sum(v) / len(v)] * channels
            for key, v in both.items()
        }
        return Preprocessing(**{**vars(self), **averages})

    def to_config(self) -> dict[str, Any]:
        """Returns the fields as plain JSON, `value_range` only if it is not None."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        }

    @classmethod
    def from_config(cls, config: "dict[str, Any] | Preprocessing") -> "Preprocessing":
        """Reads what `to_config` wrote; a transform is returned as it is."""
        if isinstance(config, Preprocessing):
            return config
        names = {field.name for field in dataclasses.fields(cls)}
        # Records of version 0.1 have no range.
        if not isinstance(config, dict) or {*config, "value_range"} != names:
            raise ValueError(
                f"A preprocessing config must be a dict of {', '.join(sorted(names))}, "
                f"as `to_config` writes it. Received: {config!r:.500}."
            )
        return cls(**config)

    @classmethod
    def of_origin(cls, origin: str, size: Any, **fields: Any) -> "Preprocessing":
        """Returns the default transform of a code base in `ORIGINS`.

        Args:
            origin: A key of `ORIGINS`.
            size: (height, width), or one number for a square.
            **fields: Fields that differ from the defaults.
        """
        defaults = ORIGINS[one_of("origin", origin, tuple(ORIGINS))]
        return cls(size, **{**defaults, **fields})

    @classmethod
    def from_timm(cls, config: dict[str, Any]) -> "Preprocessing":
        """Reads timm's `pretrained_cfg`; missing fields have timm's defaults.

        Reference: timm/data/config.py `resolve_data_config`.
        """
        config = _json_object("A timm config", config)
        size = config.get("input_size") or (3, 224, 224)
        if not isinstance(size, (list, tuple)) or len(size) != 3:
            raise ValueError(
                "`input_size` of a timm config must be (channels, height, width). "
                f"Received: {size!r}."
            )
        transform = cls(
            size=tuple(size[1:]),
            crop=config.get("crop_pct") or 0.875,
            mode=config.get("crop_mode") or "center",
            kernel=config.get("interpolation") or "bicubic",
            mean=_one_for_all(config.get("mean") or IMAGENET["mean"]),
            std=_one_for_all(config.get("std") or IMAGENET["std"]),
        )
        return transform.with_channels(integer("input_size", size[0], 1, MAX_CHANNELS))

    def to_timm(self) -> dict[str, Any]:
        """Returns timm's `pretrained_cfg`, which has no key for `antialias`."""
        config = self.to_config()
        return {
            "input_size": [self.channels, *config["size"]],
            "interpolation": config["kernel"],
            "crop_pct": config["crop"],
            "crop_mode": config["mode"],
            "mean": config["mean"],
            "std": config["std"],
        }

    @classmethod
    def from_transformers(
        cls, config: dict[str, Any], model_type: str | None = None
    ) -> "Preprocessing":
        """Reads a `preprocessor_config.json` of transformers.

        A centre crop can differ by one pixel: transformers rounds its position down,
        while timm, torchvision and this class round it to the nearest integer.

        Args:
            config: Content of the file. Missing fields have the defaults of the
                processor that it names; an unknown processor is an error.
            model_type: `model_type` of the model's `config.json`, for a file that names
                no processor; None: ViT's.
        """
        config = _json_object("A preprocessor config", config)
        return cls(**transformers.fields(config, model_type))

    @classmethod
    def from_keras_hub(cls, config: dict[str, Any]) -> "Preprocessing":
        """Reads an `image_converter.json` of keras-hub."""
        config = _json_object("An image converter", config)
        return cls(**keras_hub.fields(_json_object("Its config", config.get("config"))))


def _resized_by_pillow(
    image: Any, size: tuple[int, int], kernel: Image.Resampling
) -> np.ndarray:
    """Returns the pixels of a PIL image or an array, resized to (width, height)."""
    if isinstance(image, Image.Image):
        return np.asarray(image.resize(size, kernel))
    bands = (Image.fromarray(band) for band in np.moveaxis(image, -1, 0))
    return np.stack([np.asarray(each.resize(size, kernel)) for each in bands], axis=-1)


def _range(value_range: Any) -> tuple[float, float] | None:
    """Returns the checked argument `value_range`."""
    if value_range is None:
        return None
    low, high = number_of_each("value_range", value_range, 2, -1e9, 1e9)
    if low >= high:
        raise ArgumentError(
            "`value_range` must be two numbers, the smaller first. Received: "
            f"{value_range!r:.100}.",
            "value_range",
        )
    return low, high


def _one_for_all(values: Any) -> Any:
    """Returns the only one of several values, which stands for all in timm."""
    listed = isinstance(values, (list, tuple)) and len(values) == 1
    return values[0] if listed else values


def _channels(mean: Any, std: Any) -> int:
    """Returns the number of channels that means and deviations are given for."""
    both = [v for v in (mean, std) if isinstance(v, (list, tuple, np.ndarray))]
    counts = [len(values) for values in both if len(values)] or [3]
    if counts[0] != counts[-1]:
        raise ArgumentError(
            f"`mean` must be a number, or as many numbers as `std`, {counts[-1]}. "
            f"Received: {mean!r:.100}.",
            "mean",
            "std",
        )
    return counts[0]


def _window(source: int, target: int) -> tuple[slice, slice]:
    """Returns source and target slices of a centre crop, rounded as torchvision."""
    if source >= target:
        start = round((source - target) / 2)
        return slice(start, start + target), slice(0, target)
    start = (target - source) // 2
    return slice(0, source), slice(start, start + source)


def _json_object(name: str, config: Any) -> dict[str, Any]:
    """Returns a configuration; raises an `ArgumentError` if it is no dict."""
    if not isinstance(config, dict):
        raise ArgumentError(f"{name} must be a dict. Received: {config!r:.100}.", name)
    return config


def mean_and_std(normalization: Any, channels: int | None = None) -> dict | None:
    """Checks the argument `normalization`; returns it as plain JSON.

    Args:
        normalization: {"mean": ..., "std": ...} of pixels in 0…1, one number each
            or one for each channel, or None.
        channels: Number of channels; None: as many as there are numbers.

    Raises:
        ArgumentError: It is neither.
    """
    if normalization is None:
        return None
    if not isinstance(normalization, dict) or set(normalization) != {"mean", "std"}:
        raise ArgumentError(
            '`normalization` must be {"mean": ..., "std": ...}, of pixels in 0…1, or '
            f"None. Received: {normalization!r}.",
            "normalization",
        )
    # The transform validates both; its size does not matter.
    transform = Preprocessing(1, **normalization)
    if channels not in (None, transform.channels):
        if not all(isinstance(value, Real) for value in normalization.values()):
            raise ArgumentError(
                f"`normalization` must have a mean and a deviation for each of "
                f"{channels} channels. Received: {normalization!r:.200}.",
                "normalization",
                "channels",
            )
        transform = transform.with_channels(channels)
    return normalization_of(transform)


def normalization_of(transform: Preprocessing) -> dict:
    """Returns the argument `normalization` that does what a transform does."""
    config = transform.to_config()
    return {key: config[key] for key in ("mean", "std")}
