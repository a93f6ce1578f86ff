"""Reads a photograph as the exported model beside this file takes it.

    from transform import read
    image = read("photo.jpg")       # float32 (height, width, 3)

Needs Pillow and NumPy. export.json has the numbers: it is the evaluation transform of
the model's weights, `kerasvit.Preprocessing`.
"""

import json
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
ABOUT = json.loads(Path(__file__).with_name("export.json").read_text("utf-8"))


def read(photo) -> np.ndarray:
    """Returns the input for one image: stack several for a batch.

    Args:
        photo: Path, or image of Pillow with 8 bits per channel.

    Returns:
        float32 (height, width, 3): pixels from 0 to 255, or normalised values if the
        model takes these.
    """
    about = ABOUT["preprocessing"]
    image = photo if isinstance(photo, Image.Image) else Image.open(photo)
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"{photo} has more than 8 bits per channel: convert it.")
    image = ImageOps.exif_transpose(image)
    image = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    height, width = resized(image.height, image.width, about)
    if about["antialias"]:
        kernel = Image.Resampling(KERNELS.index(about["kernel"]))
        pixels = np.asarray(image.resize((width, height), kernel))
    else:
        pixels = bilinear(np.asarray(image, "float32"), (height, width))
    pixels = cropped(pixels, about)
    if ABOUT["input"]["values"] == "normalized":
        mean, std = np.float32(about["mean"]), np.float32(about["std"])
        pixels = (pixels / np.float32(255) - mean) / std
    return pixels


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
    out = np.empty((*about["size"], 3), "float32")
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
