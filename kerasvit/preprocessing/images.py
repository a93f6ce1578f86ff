"""Reads an image from a file, a PIL image or an array as RGB."""

import math
import os
import threading
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

# What follows "ftyp" in files of HEIC and HEIF.
_HEIC = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_OTHER_CHANNELS = (
    "Grey images of 16 bits and images of many bands need a model with as many "
    "channels: `channels=` of the data and the model (--channels of finetune.py)."
)
_ONE_HEADER = threading.Lock()  # of .npy
_KINDS = "a path, a PIL image, or an array (H, W, 3) of values 0 to 255"


class ChannelsError(ValueError):
    """An image has other channels than the others of its set, or all have others."""


def read_image(image: Any) -> Image.Image:
    """Reads a file, a PIL image or an array as an RGB image of 8 bits.

    Grey, palette, CMYK and transparent images become RGB; transparency is dropped, as
    in timm. A photo is rotated by its EXIF orientation. Of an animation the first image
    is read, of 48-bit colours the higher bytes.

    Args:
        image: Path, PIL image, or array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of
            values 0 to 255, whole or not; also that of a `.npy` file.

    Raises:
        ChannelsError: The file has more than 8 bits, or other channels.
        ValueError: `image` is none of these, missing, damaged, HEIC without its plugin,
            or of another value range, as grey images of 16 bits.
    """
    if isinstance(image, (str, PathLike)):
        return _from_file(image)
    if isinstance(image, Image.Image):
        return _to_rgb(image, "The PIL image")
    if hasattr(image, "__array__"):
        return _of_array(np.asarray(image), "The array")
    raise ValueError(f"An image must be {_KINDS}. Received: {type(image).__name__}.")


def input_problem(
    batch: np.ndarray, mean: tuple, std: tuple, *, built_in: bool = False
) -> str | None:
    """Returns an explanation if the values of a model's input look wrong, else None.

    Normalised values are between -mean / std and (1 - mean) / std: -1 to 1 for 0.5,
    within 2.7 of zero for ImageNet's. Augmentation may exceed this a few times; only
    values of the range 0 to 255 exceed it eight times.

    Args:
        batch: Array of any shape.
        mean: Mean of the three colours for values 0 to 1, as in `Preprocessing`.
        std: Standard deviation, likewise.
        built_in: Whether the model itself normalises, and so takes 0 to 255.
    """
    batch = np.asarray(batch)
    low, high = (float(batch.min()), float(batch.max())) if batch.size else (0.0, 0.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        return "The images hold values that are not finite (NaN or infinity)."
    ends = [
        abs((end - m) / s) for m, s in zip(mean, std, strict=True) for end in (0, 1)
    ]
    limit = 8 * max(ends)
    came = f"These lie between {low:.4g} and {high:.4g}"
    whole = batch.dtype.kind in "iu"
    if built_in and not whole and high <= limit and (low < 0 or 0 < high <= 1):
        return (
            "The model has the normalisation built in and takes values 0 to 255. "
            f"{came}, which looks normalised already: leave that step out "
            "(`normalize=False` in a `Preprocessing`)."
        )
    if not built_in and (max(-low, high) > limit or (whole and limit < 255)):
        return (
            "The model takes normalised values, (image / 255 - mean) / std with mean "
            f"{mean} and std {std}. {came}, which looks like 0 to 255: prepare them "
            "with the model's `Preprocessing`, or build the model with "
            "`include_preprocessing=True`."
        )
    return None


def check_file(path: str | PathLike) -> Path:
    """Returns the path of a file.

    Raises:
        ValueError: It is a web address or a folder, or does not exist.
    """
    if str(path).startswith(("http://", "https://")):
        raise ValueError(f"{path} is a web address: download it, then pass its path.")
    file = Path(os.path.expanduser(path))
    if file.is_dir():
        raise ValueError(
            f"{path} is a folder, not an image: pass its files, for example "
            f"sorted(pathlib.Path({str(path)!r}).glob('*.jpg'))."
        )
    if not file.exists():
        raise ValueError(
            f"There is no file {path} (looked in {Path.cwd()}): check the path."
        )
    return file


def read_npy(file: Path) -> Any:
    """Reads an array, one at a time: NumPy parses the header with `ast`.

    Its parser of CPython 3.11 counts the depth of all threads together, and fails.
    """
    with _ONE_HEADER:
        return np.load(file, allow_pickle=False)


def _from_file(path: str | PathLike) -> Image.Image:
    file = check_file(path)
    # Pillow's decoders raise many types of errors for damaged files.
    try:
        if file.suffix.lower() == ".npy":
            image = read_npy(file)
        else:
            with Image.open(file) as image:
                image.load()
                if not _is_deep(image):
                    return _to_rgb(image, str(path))
    except Exception as error:
        what_to_do = "replace it, convert it to JPEG or PNG, or leave it out."
        if file.suffix.lower() in (".tif", ".tiff") and (bands := _bands_in(file)):
            raise ChannelsError(
                f"{path} must have colours or grey of 8 bits. Received: {bands}. "
                f"{_OTHER_CHANNELS}"
            ) from error
        if _is_heic(file):
            what_to_do = (
                "it is HEIC, as of an iPhone: convert it to JPEG, or install "
                "pillow-heif and call pillow_heif.register_heif_opener() before."
            )
        raise ValueError(
            f"{path} cannot be read as an image ({error}): {what_to_do}"
        ) from error
    if isinstance(image, np.ndarray):
        return _of_array(image, str(path))
    raise ChannelsError(_explain_depth(image, str(path)))


def _bands_in(file: Path) -> str | None:
    """Returns shape and type of a TIFF that tifffile reads; None for others."""
    try:
        import tifffile

        with tifffile.TiffFile(file) as found:
            return f"shape {found.series[0].shape}, {found.series[0].dtype}"
    except Exception:  # not installed, or of its decoders, for a damaged file
        return None


def _of_array(array: np.ndarray, name: str) -> Image.Image:
    return _to_rgb(Image.fromarray(_to_bytes(array, name)), name)


def _is_heic(file: Path) -> bool:
    """Returns whether a file, of whatever name, begins as HEIC does."""
    with file.open("rb") as opened:
        start = opened.read(12)
    return start[4:8] == b"ftyp" and start[8:] in _HEIC


def _is_deep(image: Image.Image) -> bool:
    """Returns whether the values of an image have no fixed range from black to white.

    Pillow reads 48-bit colours as 24 bits, but keeps grey values of 16 bits, which may
    be those of a camera with 12, and would clip them at 255.
    """
    return image.mode.startswith(("I", "F"))


def _explain_depth(image: Image.Image, name: str) -> str:
    return (
        f"{name} has more than 8 bits per channel (Pillow's mode {image.mode!r}): "
        "convert it to 8 bits, so that black is 0 and white is 255. For example, with "
        "ImageMagick, `magick old.png -auto-level -depth 8 new.png`; or pass the uint8 "
        "array `np.asarray(image) // 257` if its values go up to 65,535. "
        f"{_OTHER_CHANNELS}"
    )


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    if _is_deep(image):
        raise ValueError(_explain_depth(image, name))
    if min(image.size) < 1:
        raise ValueError(f"{name} is empty: it has {image.size} pixels.")
    image = ImageOps.exif_transpose(image)
    # The conversion to RGBA avoids Pillow's warning for transparent palettes.
    return (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")


def _to_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Checks an array of pixels and rounds it to uint8."""
    shape = (
        array.shape[:-1] if array.ndim == 3 and array.shape[-1] == 1 else array.shape
    )
    if len(shape) not in (2, 3) or shape[2:] not in ((), (3,), (4,)) or 0 in shape:
        raise ChannelsError(
            f"{name} must be (height, width) or (height, width, channels), with 1, 3 "
            f"or 4 channels that come last. Received: shape {array.shape}. "
            f"{_OTHER_CHANNELS}"
        )
    array = array.reshape(shape)
    if array.dtype == "uint8":
        return array
    problem = None
    if array.dtype.kind not in "iuf":
        problem = f"dtype {array.dtype}"
    elif not (array.min() >= 0 and array.max() <= 255):  # also where there is a NaN
        problem = f"values between {array.min():.4g} and {array.max():.4g}"
    elif array.dtype.kind == "f" and 0 < array.max() <= 1:
        problem = "floats between 0 and 1, which need to be multiplied by 255"
    if problem:
        raise ValueError(
            f"{name} must be uint8, or hold values from 0 to 255. Received: {problem}."
        )
    return np.round(array).astype("uint8")
