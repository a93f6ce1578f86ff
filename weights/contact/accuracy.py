"""Accuracy on ImageNet's validation images, with the original and the ReaL labels.

The ReaL labels are real.json of github.com/google-research/reassessed-imagenet: a list
of the correct classes of each image, in the order of their numbers. Images without a
correct class are not counted (Beyer et al. 2020, arXiv:2006.07159).
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import Entry

from ..labelled_images import digest_of, list_images, predictions, shortfall

VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")  # numbers from 1
CLASSES = 1000
# What `list_images` reads from the record of a model of ImageNet's classes.
IMAGENET = {"kwargs": {"num_classes": CLASSES}, "label_names": "imagenet1k"}


def accuracy(
    model: keras.Model, entry: Entry, folder: str | Path, real: str | Path | None
) -> dict:
    """Measures the accuracy of a model on labelled images.

    Args:
        model: `ImageModel` of ImageNet's classes.
        entry: Its entry.
        folder: Folder of class folders, as for `list_images`.
        real: Path of real.json, or None.

    Returns:
        Field `top1` of `results.Result`.

    Raises:
        ImageError: An image cannot be read.
        ValueError: As for `check_images`.
    """
    paths, labels = zip(*list_images(IMAGENET, folder), strict=True)
    predicted = predictions(model, paths)
    correct, count = int(np.sum(predicted == labels)), len(paths)
    # The published value is an accuracy on all classes.
    classes = len(set(labels))
    published = entry.top1["percent"] if entry.top1 and classes == CLASSES else None
    passed = True
    if published is not None:
        below, allowed = shortfall(published, correct, count)
        passed = below <= allowed
    return {
        "percent": 100 * correct / count,
        "images": count,
        "classes": classes,
        "digest": digest_of(paths, folder),
        "labels": real and file_hash(Path(real)),
        "published": published,
        "real_percent": real and real_percent(predicted, paths, read_real(real)),
        "passed": passed,
    }


def check_images(folder: str | Path | None, real: str | Path | None) -> str | None:
    """Returns `digest_of` the images; None without a folder.

    Raises:
        ValueError: The images or the ReaL labels cannot be used.
    """
    if real and not folder:
        raise ValueError("`--real` needs `--images`: the labels are of its images.")
    if not folder:
        return None
    paths = [path for path, _ in list_images(IMAGENET, folder)]
    if real:
        labels = read_real(real)
        counted = [labels[_number(path, len(labels)) - 1] for path in paths]
        if not any(counted):
            raise ValueError(f"{real} has no label for any image of {folder}.")
    return digest_of(paths, folder)


def read_real(path: str | Path) -> list[list[int]]:
    """Returns the classes of each image in real.json.

    Raises:
        ValueError: The file is missing or of another format.
    """
    try:
        content = json.loads(Path(os.path.expanduser(path)).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"`--real`: {path} cannot be read: {error}") from error
    if not isinstance(content, list) or not all(map(_is_label_list, content)):
        raise ValueError(
            f"`--real`: {path} must contain a list of lists of classes from 0 to "
            f"{CLASSES - 1}, as real.json of google-research/reassessed-imagenet does."
        )
    return content


def real_percent(
    predicted: np.ndarray, paths: Sequence[Path], labels: list[list[int]]
) -> float:
    """Returns the share of images whose prediction is a ReaL label, in per cent.

    Args:
        predicted: Predicted class of each image.
        paths: Paths of the images, with their numbers in the file names.
        labels: Correct classes of the images by number, from 1; images with none are
            not counted.
    """
    pairs = zip(predicted, paths, strict=True)
    correct = [
        predicted_class in labels[_number(path, len(labels)) - 1]
        for predicted_class, path in pairs
        if labels[_number(path, len(labels)) - 1]
    ]
    return 100 * sum(correct) / len(correct)


def _number(path: Path, count: int) -> int:
    """Returns the number of a validation image, from 1 to `count`."""
    found = VALIDATION.match(path.name)
    if not found or not 1 <= int(found[1]) <= count:
        raise ValueError(
            "With `--real`, the images must have their original names, "
            f"ILSVRC2012_val_00000001.JPEG to {count:08d}. Received: {path}."
        )
    return int(found[1])


def _is_label_list(labels: object) -> bool:
    return isinstance(labels, list) and all(
        type(label) is int and 0 <= label < CLASSES for label in labels
    )
