"""Masks of the objects in photographs: a file for each, in a folder.

    masks/tabby_3.png or masks/cat/tabby_3.png    of photos/cat/tabby_3.jpg

Black is the background and every other colour the object. A mask has as many pixels as
its photograph, and is cropped and resized as the model's transform does it.
"""

import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np

from kerasvit import Preprocessing
from kerasvit.data import IndexedImages, files_in
from kerasvit.preprocessing import read_bands, read_image

SUFFIXES = {".png", ".bmp", ".gif", ".tif", ".tiff"}  # JPEG would change the colours


@dataclasses.dataclass(frozen=True)
class Masks:
    """Masks of some images of a subject.

    Attributes:
        numbers: Numbers of the images, int (M,).
        masks: True on the object, bool (M, H, W), of the size of the model's images.
    """

    numbers: np.ndarray
    masks: np.ndarray

    @property
    def digest(self) -> str:
        """SHA-256."""
        content = self.numbers.astype("int64").tobytes() + self.masks.tobytes()
        return hashlib.sha256(content).hexdigest()


def find(folder: str, images) -> dict[Path, Path]:
    """Returns {file of an image: file of its mask}.

    Args:
        folder: The folder.
        images: All images of the set, of which some may have no mask.

    Raises:
        ValueError: The images are no files, or a mask is of none or of several of them.
    """
    if not isinstance(images, IndexedImages) or images.is_array:
        raise ValueError(
            "`masks` have the names of files, and these images are none. Give the "
            "images as a folder of class folders or a CSV with --data."
        )
    root = Path(os.path.expanduser(folder))
    by_name: dict[str, list[Path]] = {}
    for path in map(Path, images.items):
        by_name.setdefault(path.stem, []).append(path)
    found: dict[Path, Path] = {}
    for mask in sorted(files_in(root)):
        if mask.suffix.lower() not in SUFFIXES:
            raise ValueError(
                f"`masks`: {mask} must be one of {', '.join(sorted(SUFFIXES))}."
            )
        named = by_name.get(mask.stem, [])
        if mask.parent != root:
            named = [path for path in named if path.parent.name == mask.parent.name]
        if len(named) != 1 or named[0] in found:
            raise ValueError(_problem(mask, named, found))
        found[named[0]] = mask
    if not found:
        raise ValueError(f"`masks`: {folder} has no masks.")
    return found


def _problem(mask, named, found):
    if not named:
        return f"`masks`: {mask} has the name of no image. Rename or remove it."
    if len(named) == 1:
        return f"`masks`: {found[named[0]]} and {mask} are both of {named[0]}."
    return (
        f"`masks`: {mask} has the name of {named[0]} and of {named[1]}. Put it into a "
        f"folder {named[0].parent.name} or {named[1].parent.name}."
    )


def read(
    files: dict[Path, Path], images: IndexedImages, transform: Preprocessing
) -> Masks | None:
    """Reads the masks of images; None if they have none.

    Args:
        files: Result of `find`.
        images: Some of the images.
        transform: Transform of the images.

    Raises:
        ValueError: A mask cannot be read, has another size than its image, or has no
            object where the transform crops it.
    """
    pairs = [(i, Path(path)) for i, path in enumerate(images.items)]
    pairs = [(i, path) for i, path in pairs if path in files]
    if not pairs:
        return None
    masks = [_transformed(files[path], path, transform) for _, path in pairs]
    return Masks(np.array([i for i, _ in pairs]), np.stack(masks))


def _pixels(photo, transform):
    if transform.channels == 3:
        return np.asarray(read_image(photo))
    return read_bands(photo, transform.channels, transform.value_range)


def _transformed(file, photo, transform):
    mask, image = np.asarray(read_image(file)), _pixels(photo, transform)
    if mask.shape[:2] != image.shape[:2]:
        sizes = [f"{each.shape[0]} × {each.shape[1]}" for each in (mask, image)]
        raise ValueError(
            f"`masks`: {file} has {sizes[0]} pixels, and its image {photo} has "
            f"{sizes[1]}. Make them equal."
        )
    shown = 255 * mask.any(axis=2).astype("uint8")
    # RGB with a black border.
    transform = dataclasses.replace(transform, mean=0.0, std=1.0, value_range=None)
    found = transform(shown, normalize=False)[..., 0] > 127
    if not found.any():
        raise ValueError(
            f"`masks`: {file} is black where the model looks, {transform.size[0]} × "
            f"{transform.size[1]} pixels after the transform. Remove it."
        )
    return found
