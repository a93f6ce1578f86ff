"""Top-1 on a folder of class folders of images."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from kerasvit import Preprocessing
from kerasvit.prediction import imagenet_names

BATCH_SIZE = 32


def top1(model: keras.Model, folder: str | Path) -> tuple[int, int]:
    """(how many images are named right, of how many).

    Args:
        model: `ImageModel` with a head.
        folder: As for `listed`.

    Raises:
        ValueError: As of `listed`, or an image cannot be read.
    """
    images = listed(model.record, folder)
    transform = Preprocessing.from_config(model.record["preprocessing"])
    right = 0
    for i in range(0, len(images), BATCH_SIZE):
        paths, truth = zip(*images[i : i + BATCH_SIZE], strict=True)
        batch = np.stack([transform(path) for path in paths])
        found = np.argmax(model.predict(batch, verbose=0), axis=-1)
        right += int(np.sum(found == truth))
    return right, len(images)


def shortfall(percent: float, right: int, count: int) -> tuple[float, float]:
    """(how far top-1 is below the published, how far it may be), as shares of 1.

    It may be three standard errors of so many images, and a point, which decoding and
    resizing in other ways can make.

    Args:
        percent: The published top-1.
        right: How many images were named right.
        count: Of how many.
    """
    share = percent / 100
    error = math.sqrt(share * (1 - share) / count)
    return share - right / count, 3 * error + 0.01


def listed(record: dict, folder: str | Path) -> list[tuple[Path, int]]:
    """The images of a folder and the class of each.

    Args:
        record: Of the model.
        folder: Holds a folder of images for each class, or for some: `class_indices`.

    Raises:
        ValueError: There are none, or a folder's name is of no class.
    """
    classes = record["kwargs"]["num_classes"]
    if not classes:
        raise ValueError("The model has no head: top-1 cannot be measured.")
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and _is_seen(p))
    labels = record["label_names"]
    labels = imagenet_names() if labels == "imagenet1k" else labels or ()
    indices = class_indices([path.name for path in folders], labels, classes)
    images = [
        (path, index)
        for place, index in zip(folders, indices, strict=True)
        for path in sorted(place.rglob("*"))
        if path.is_file() and _is_seen(path)
    ]
    if not images:
        raise ValueError(f"{folder} holds no folders of images, one for each class.")
    return images


def class_indices(
    names: Sequence[str], labels: Sequence[str], classes: int
) -> list[int]:
    """The class that each folder is of, by its name.

    Args:
        names: Of the folders: a label or the first word of one, such as "tench"; or a
            number from 0; or all of them WordNet's, such as n01440764, one for each
            class, in whose order the classes are.
        labels: Of the classes, or none.
        classes: How many there are.

    Raises:
        ValueError: A name is of no class, or of two.
    """
    if len(names) == classes and all(re.fullmatch(r"n\d{8}", name) for name in names):
        return list(np.argsort(np.argsort(names)))
    places: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        for word in {label.lower(), label.split(",")[0].lower()}:
            places.setdefault(word, []).append(i)
    return [_index(name, places, classes) for name in names]


def _index(name: str, places: dict[str, list[int]], classes: int) -> int:
    found = places.get(name.lower(), [])
    if name.isdecimal() and int(name) < classes:
        found = [int(name)]
    if len(found) != 1:
        raise ValueError(
            f"The folder {name!r} is of {'two classes' if found else 'no class'}. Its "
            f"name must be a label of the model, or a number from 0 to {classes - 1}."
        )
    return found[0]


def _is_seen(path: Path) -> bool:
    return not path.name.startswith(".")
