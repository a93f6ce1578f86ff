"""Reads a photograph as the exported model beside this file takes it.

    from transform import read
    image = read("photo.jpg")       # float32 (height, width, channels)

Needs Pillow and NumPy, and tifffile for TIFF of many bands. export.json has the
numbers: it is the evaluation transform of the model's weights,
`kerasvit.Preprocessing`.
"""

import functools
import json
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


@functools.cache
def export() -> dict:
    """Returns the export.json beside this file."""
    return json.loads(Path(__file__).with_name("export.json").read_text("utf-8"))


def read(photo, stated: dict | None = None) -> np.ndarray:
    """Returns the input for one image: stack several for a batch.

    Args:
        photo: Path, or image of Pillow, with 8 bits per channel if these are three. For
            other channels also `.npy`, TIFF of many bands, or an array (height, width,
            channels).
        stated: Contents of another export.json. None: of the one beside this file.

    Returns:
        float32 (height, width, channels): pixels from 0 to 255, or normalised values if
        the model takes these. If it resizes itself, uint8 of the photograph's size.
    """
    stated = stated or export()
    about, values = stated["preprocessing"], stated["input"]["values"]
    if values == "photo":
        return np.asarray(colours(photo))
    channels, value_range = len(about["mean"]), about.get("value_range")
    if channels == 3 and not value_range:
        image = colours(photo)
    else:
        image = bands(photo, channels, value_range)
    height, width = resized(*np.shape(image)[:2], about)
    if not about["antialias"]:
        pixels = bilinear(np.asarray(image, "float32"), (height, width))
    elif isinstance(image, Image.Image):
        kernel = Image.Resampling(KERNELS.index(about["kernel"]))
        pixels = np.asarray(image.resize((width, height), kernel))
    else:
        kernel = Image.Resampling(KERNELS.index(about["kernel"]))
        each = (Image.fromarray(image[..., i]) for i in range(channels))
        pixels = np.stack([band.resize((width, height), kernel) for band in each], -1)
    pixels = cropped(pixels, about)
    if values == "normalized":
        mean, std = np.float32(about["mean"]), np.float32(about["std"])
        pixels = (pixels / np.float32(255) - mean) / std
    return pixels


def colours(photo) -> Image.Image:
    """Returns an RGB image of 8 bits."""
    given = isinstance(photo, Image.Image)
    image, name = (photo, "The image") if given else (Image.open(photo), photo)
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"{name} has more than 8 bits per channel: convert it.")
    image = upright(image, name)
    return (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")


def upright(image: Image.Image, name) -> Image.Image:
    """Returns an image, decoded, as its EXIF data turn it."""
    try:
        return ImageOps.exif_transpose(image)
    # Pillow raises many types of errors for damaged files, and for damaged EXIF data.
    except Exception as error:
        raise ValueError(
            f"{name} cannot be read as an image ({error}): replace it, convert it to "
            "JPEG or PNG, or leave it out."
        ) from error


def bands(photo, channels: int, value_range) -> np.ndarray:
    """Returns float32 (height, width, channels), 0 to 255 for the range of values."""
    name = "The image"
    suffix = Path(photo).suffix.lower() if isinstance(photo, (str, Path)) else ""
    if suffix == ".npy":
        photo = np.load(photo)
    elif suffix in (".tif", ".tiff") and channels > 1:
        import tifffile

        photo = tifffile.imread(photo)
    elif suffix:
        name, photo = photo, Image.open(photo)
    if isinstance(photo, Image.Image):
        photo = upright(photo, name)
        deep = photo.mode.startswith(("I", "F"))
        photo = photo.convert("RGBA") if photo.mode == "P" else photo
        mode = {1: "L", 3: "RGB"}.get(channels)
        photo = photo.convert(mode) if mode and not deep else photo
    array = np.asarray(photo)
    if array.ndim == 2:
        array = array[..., None]
    if array.shape[-1] != channels == array.shape[0]:
        array = np.moveaxis(array, 0, -1)
    if array.ndim != 3 or array.shape[-1] != channels:
        raise ValueError(f"The model takes {channels} channels, not {array.shape}.")
    largest = {"uint8": 255, "uint16": 65_535}.get(array.dtype.name, 1)
    if not value_range and largest == 1 and array.dtype.kind != "f":
        raise ValueError(f"The range of {array.dtype.name} is not known.")
    low, high = value_range or (0, largest)
    array = array.astype("float32")
    return (array - np.float32(low)) * np.float32(255 / (high - low))


def resized(height: int, width: int, about: dict) -> tuple[int, int]:
    """Returns (height, width) to which an image is resized before the crop."""
    tall, wide = (math.floor(side / about["crop"]) for side in about["size"])
    if about["mode"] == "squash":
        return tall, wide
    if about["mode"] == "center" and tall == wide:
        short = min(height, width)
        return int(tall * height / short), int(wide * width / short)
    choose = max if about["mode"] == "border" else min
    ratio = choose(height / tall, width / wide)
    return max(round(height / ratio), 1), max(round(width / ratio), 1)


def bilinear(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns resized pixels, without antialiasing, as tf.image.resize."""
    for axis, side in enumerate(size):
        before = pixels.shape[axis]
        place = (np.arange(side) + 0.5) * before / side - 0.5
        first = np.floor(place).astype(int)
        share = np.expand_dims(place - first, tuple({0, 1, 2} - {axis}))
        low, high = (
            pixels.take(np.clip(first + step, 0, before - 1), axis) for step in (0, 1)
        )
        pixels = (low * (1 - share) + high * share).astype("float32")
    return pixels


def cropped(pixels: np.ndarray, about: dict) -> np.ndarray:
    """Returns the centre of an image, with a border in the mean's colour if needed."""
    out = np.empty((*about["size"], pixels.shape[-1]), "float32")
    out[:] = [min(max(round(255 * mean), 0), 255) for mean in about["mean"]]
    windows = []
    for before, side in zip(pixels.shape[:2], about["size"], strict=True):
        if before >= side:
            start = round((before - side) / 2)
            windows.append((slice(start, start + side), slice(0, side)))
        else:
            start = (side - before) // 2
            windows.append((slice(0, before), slice(start, start + before)))
    source, target = zip(*windows, strict=True)
    out[target] = pixels[source]
    return out
