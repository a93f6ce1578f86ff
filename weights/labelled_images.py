"""Measures top-1 accuracy on labelled images, one folder per class."""

import hashlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from kerasvit.prediction import imagenet_names

BATCH_SIZE = 32


class ImageError(ValueError):
    """An image in the folder cannot be read."""


def top1(model: keras.Model, folder: str | Path) -> tuple[int, int]:
    """Classifies the images of a folder.

    Args:
        model: `ImageModel` with a head.
        folder: Folder of class folders, as for `list_images`.

    Returns:
        (number of correctly classified images, number of images).

    Raises:
        ImageError: An image cannot be read.
        ValueError: As for `list_images`.
    """
    paths, labels = zip(*list_images(model.record, folder), strict=True)
    return int(np.sum(predictions(model, paths) == labels)), len(paths)


def predictions(model: keras.Model, paths: Sequence[Path]) -> np.ndarray:
    """Returns the index of the most probable class of each image, shape (images,).

    Args:
        model: `ImageModel` with a head.
        paths: Paths of at least one image.

    Raises:
        ImageError: An image cannot be read.
    """
    transform = model.preprocessing
    predicted = []
    for i in range(0, len(paths), BATCH_SIZE):
        try:
            batch = np.stack([transform(path) for path in paths[i : i + BATCH_SIZE]])
        except ValueError as error:
            raise ImageError(str(error)) from error
        predicted.append(np.argmax(model.predict(batch, verbose=0), axis=-1))
    return np.concatenate(predicted)


def shortfall(percent: float, correct: int, count: int) -> tuple[float, float]:
    """Computes how far top-1 is below the published value.

    The limit is three standard errors, √(p (1 − p) / n), plus 0.01 for other ways to
    decode and resize images.

    Args:
        percent: Published top-1 in per cent.
        correct: Number of correctly classified images.
        count: Number of images.

    Returns:
        (difference, limit of the difference), both as fractions of 1.
    """
    published = percent / 100
    error = math.sqrt(published * (1 - published) / count)
    return published - correct / count, 3 * error + 0.01


def digest_of(paths: Sequence[Path], folder: str | Path) -> str:
    """Returns a SHA-256 of the names and sizes of the images in a folder."""
    folder = Path(os.path.expanduser(folder))
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def list_images(record: dict, folder: str | Path) -> list[tuple[Path, int]]:
    """Lists the images of a folder with their classes.

    Args:
        record: `ImageModel.record` of the model.
        folder: Folder that contains one folder of images per class, for all or some of
            the classes; `class_indices` explains their names.

    Returns:
        (path, index of the class) of each image.

    Raises:
        ValueError: The folder does not exist or has no images, the name of a class
            folder is unknown, or the model has no head.
    """
    classes = record["kwargs"]["num_classes"]
    if not classes:
        raise ValueError("The model has no head: top-1 cannot be measured.")
    folder = Path(os.path.expanduser(folder))
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and _is_visible(p))
    labels = record["label_names"]
    labels = imagenet_names() if labels == "imagenet1k" else labels or ()
    indices = class_indices([path.name for path in folders], labels, classes)
    images = [
        (path, index)
        for class_folder, index in zip(folders, indices, strict=True)
        for path in sorted(class_folder.rglob("*"))
        if path.is_file() and _is_visible(path)
    ]
    if not images:
        raise ValueError(f"{folder} must contain one folder of images per class.")
    return images


def class_indices(
    names: Sequence[str], labels: Sequence[str], classes: int
) -> list[int]:
    """Maps the names of class folders to class indices.

    Args:
        names: Names of the folders. Each is a label or the first word of a label, such
            as "tench", or a class index; or they are WordNet numbers such as n01440764,
            one per class, and their sorted order is that of the classes.
        labels: Labels of the classes; may be empty.
        classes: Number of classes.

    Returns:
        The class index of each folder.

    Raises:
        ValueError: A name matches no class or two classes.
    """
    if len(names) == classes and all(re.fullmatch(r"n\d{8}", name) for name in names):
        return list(np.argsort(np.argsort(names)))
    indices: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        for word in {label.lower(), label.split(",")[0].lower()}:
            indices.setdefault(word, []).append(i)
    return [_index(name, indices, classes) for name in names]


def _index(name: str, indices: dict[str, list[int]], classes: int) -> int:
    found = indices.get(name.lower(), [])
    if name.isdecimal() and int(name) < classes:
        found = [int(name)]
    if len(found) != 1:
        matched = "two classes" if found else "no class"
        raise ValueError(
            f"The folder name {name!r} matches {matched}. "
            f"Use a label of the model, or a number from 0 to {classes - 1}."
        )
    return found[0]


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".")
