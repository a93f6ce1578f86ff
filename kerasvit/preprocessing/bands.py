"""Reads images with any number of channels, such as X-rays and satellite images."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from .images import ChannelsError, check_file, read_npy

# Values that stand for 1.
_FULL = {"uint8": 255, "uint16": 65_535}
_MODES = {1: "L", 3: "RGB"}  # of Pillow, by the number of channels
_TIFF = (".tif", ".tiff")


def read_bands(
    image: Any, channels: int, value_range: tuple[float, float] | None = None
) -> np.ndarray:
    """Reads a file, a PIL image or an array with a number of channels.

    Files are read by Pillow, `.npy` by NumPy, and TIFF of several bands, or of numbers
    that Pillow does not read, by `tifffile`, which needs to be installed. A photo is
    rotated by its EXIF orientation. Colours become grey for one channel.

    Args:
        image: Path, PIL image, or array (H, W, C) or, of one channel, (H, W). Files and
            arrays may have the channels first.
        channels: C.
        value_range: Values that stand for 0 and 1. None: 0 and 255 for uint8, 0 and
            65,535 for uint16, 0 and 1 for floats.

    Returns:
        (H, W, C) float32, values 0 to 255 for those from 0 to 1.

    Raises:
        ChannelsError: The image has another number of channels.
        ValueError: `image` is none of these, missing or damaged, or has values of
            another type without a `value_range`.
    """
    name = "The array"
    if isinstance(image, (str, PathLike)):
        name = str(image)
        image = _from_file(check_file(image), channels)
    if isinstance(image, Image.Image):
        image = _from_pillow(image, channels)
    if not hasattr(image, "__array__"):
        raise ValueError(
            "An image must be a path, a PIL image or an array. Received: "
            f"{type(image).__name__}."
        )
    array = _channels_last(np.asarray(image), channels, name)
    return _scaled(array, value_range, name)


def _from_file(file: Path, channels: int) -> Any:
    """Returns a PIL image or an array."""
    try:
        return _decoded(file, channels)
    except ImportError:
        raise
    except Exception as error:  # decoders raise many types for damaged files
        raise ValueError(
            f"{file} cannot be read as an image ({error}): replace it, or leave it out."
        ) from error


def _decoded(file: Path, channels: int) -> Any:
    suffix = file.suffix.lower()
    if suffix == ".npy":
        return read_npy(file)
    if suffix in _TIFF and channels > 1:  # Pillow keeps 8 of 16 bits, if it reads them
        return _tifffile().imread(file)
    try:
        opened = Image.open(file)
    except UnidentifiedImageError:  # as TIFF of float64
        if suffix not in _TIFF:
            raise
        return _tifffile().imread(file)
    with opened as image:
        if suffix in _TIFF and getattr(image, "n_frames", 1) > 1:  # maybe bands
            return _tifffile().imread(file)
        image.load()
    return image


def _tifffile() -> Any:
    try:
        import tifffile
    except ImportError:
        raise ImportError(
            "TIFF files of several bands are read by tifffile: pip install tifffile"
        ) from None
    return tifffile


def _from_pillow(image: Image.Image, channels: int) -> np.ndarray:
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype("uint16")
    if image.mode in ("I", "F"):
        return np.asarray(image)
    mode = _MODES.get(channels)
    if image.mode == "P":
        image = image.convert("RGBA")
    return np.asarray(image.convert(mode) if mode else image)


def _channels_last(array: np.ndarray, channels: int, name: str) -> np.ndarray:
    if array.ndim == 2 and channels == 1:
        array = array[..., None]
    if array.ndim == 3 and array.shape[-1] != channels == array.shape[0]:
        array = np.moveaxis(array, 0, -1)
    if array.ndim != 3 or array.shape[-1] != channels or 0 in array.shape:
        raise ChannelsError(
            f"{name} must have {channels} channels, as the model: (height, width, "
            f"{channels}). Received: shape {array.shape}. Leave it out; or, if the "
            "other images are like it, state their number as `channels=` of the data "
            "and the model (--channels of finetune.py)."
        )
    return array


def _scaled(
    array: np.ndarray, value_range: tuple[float, float] | None, name: str
) -> np.ndarray:
    kind = array.dtype.name
    if value_range is None and kind not in _FULL and array.dtype.kind != "f":
        raise ValueError(
            f"{name} has values of the type {kind}, of which the range is not known. "
            'State it in the model\'s transform: preprocessing={"value_range": (0, '
            "4095)} (--value-range 0 4095 of the recipes)."
        )
    low, high = value_range or (0, _FULL.get(kind, 1))
    array = array.astype("float32")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite (NaN or infinity).")
    return (array - np.float32(low)) * np.float32(255 / (high - low))
