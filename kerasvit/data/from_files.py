"""Labelled images of a folder or of a table: finds, checks and splits them.

images = from_folder("photos")               # a folder of class folders
images = from_table("labels.csv")            # a table of paths and labels, or several
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kerasvit.arguments import integer, one_of

from .folders import check_images, classes, existing, given_splits
from .images import IndexedImages
from .labelled_images import LabelledImages, labelled
from .splits import SHARES, split, with_validation
from .tables import TASKS, Row, Table, Task, read_table

Files = dict[str, dict[str, list[Path]]]  # {part: {class: files}}


def find_files(path: str | os.PathLike) -> Files:
    """Returns {part: {class: files}} of a folder of class folders, or of a CSV.

    The parts are "train" and others; or "all", if they are not given.

    Raises:
        ValueError: As for `from_folder` and `from_table`; but a part may have one
            class only.
    """
    found = Path(os.path.expanduser(path))
    if found.is_file():
        table = read_table(found)
        files: Files = {}
        for row in _ordered(table.rows):
            files.setdefault(row.part, {}).setdefault(row.labels[0], []).append(
                row.file
            )
        return files
    root = existing(path, table=False)
    splits = given_splits(root) or {"all": root}
    return {part: classes(place) for part, place in splits.items()}


def from_folder(
    path: str | os.PathLike,
    *,
    validation_share: float | None = None,
    channels: int = 3,
    shard: tuple[int, int] = (0, 1),
) -> LabelledImages:
    """Returns the images of a folder, after reading them all to find damaged files.

    For `path/class/image.jpg`, a fixed tenth of every class is used for validation and
    a fixed fifth for the test. For `path/train/class/image.jpg`, the same folders are
    expected in `validation` (`val`, `valid`), `test` or both. Without validation, a
    tenth of train is used; without test, the validation images are the test images.

    Args:
        path: The folder.
        validation_share: Instead of a tenth for validation.
        channels: Number of channels of the images, such as 1 for X-rays: grey PNG and
            TIFF of 8 or 16 bits, TIFF of many bands, and `.npy`. With three, every
            image becomes RGB of 8 bits.
        shard: (i, n): reads every n-th image, from the i-th, to find damaged files, for
            process i of n, which together read all.

    Raises:
        ValueError: The folder does not exist, has fewer than two classes or too few
            images, or contains a damaged file; the share is given although there are
            validation images.
    """
    if Path(path).is_file():
        raise ValueError(f"{path} is a file: give it to `from_table`, if it is a CSV.")
    root = existing(path, table=False)
    places = given_splits(root) or {"all": root}
    found = {part: classes(place) for part, place in places.items()}
    _check_classes(found, places)
    rows = [
        Row(0, file, (name,), part)
        for part, named in found.items()
        for name, files in named.items()
        for file in files
    ]
    table = Table(rows, list(found[next(iter(found))]))
    images = _of_table(path, table, places, validation_share, channels, shard)
    if images.test is images.validation:  # such as "val"
        images = dataclasses.replace(images, test_name=places["validation"].name)
    return images


def from_table(
    path: str | os.PathLike,
    *,
    task: Task = "single_label",
    validation_share: float | None = None,
    channels: int = 3,
    shard: tuple[int, int] = (0, 1),
) -> LabelledImages:
    """Returns the images of a table, after reading them all to find damaged files.

    The first line of a CSV names the columns: path (or file, filename, image), label
    (or class), and perhaps split and group. A path is relative to the folder of the
    table. A split is train, validation (val, valid) or test; without this column,
    images are chosen for validation and test as in `from_folder`. Images of one group,
    such as those of a patient, are then in one part.

    Of several labels, the column label has a|b, or nothing; or, without this column,
    each other column is a class, with 0 and 1. Each class with three images or more is
    then in each part. JSON Lines have the same fields, and a list `labels`.

    Args:
        path: CSV in UTF-8, or JSON Lines (.jsonl).
        task: "single_label", or "multilabel": an image may have several, or none.
        validation_share, channels, shard: As for `from_folder`.

    Raises:
        ValueError: The file does not exist or is no such table; a line is wrong; groups
            cannot be split; and as for `from_folder`.
    """
    table = existing(path, table=True)
    found = read_table(table, one_of("task", task, TASKS))
    places = {row.part: table.parent for row in found.rows}
    several = task == "multilabel"
    return _of_table(path, found, places, validation_share, channels, shard, several)


def _check_classes(found: Files, places: dict[str, Path]) -> None:
    """Raises a `ValueError` unless the parts of a folder hold the same classes."""
    first = next(iter(found))
    names = list(found[first])
    if len(names) < 2:
        raise ValueError(
            f"{places[first]} holds one class only, {names[0]!r}. A classifier "
            "needs two or more class folders."
        )
    for part, named in found.items():
        if wrong := set(names) ^ set(named):
            raise ValueError(
                f"{places[part]} and {places[first]} must hold the same class folders. "
                f"Only in one: {', '.join(sorted(wrong))}."
            )


def _of_table(
    path: str | os.PathLike,
    table: Table,
    places: dict[str, Path],
    validation_share: float | None,
    channels: int,
    shard: tuple[int, int],
    several: bool = False,
) -> LabelledImages:
    """Checks files and returns their images; paths in `places` are their names."""
    if "validation" in places and validation_share is not None:
        raise ValueError(
            f"`validation_share`: {path} has validation images of its own, and no "
            "others are used. Leave it out."
        )
    first = "all" if "all" in places else "train"
    process, processes = shard
    files = [row.file for row in table.rows]
    check_images(files[process::processes], integer("channels", channels, 1))
    rows = _ordered(table.rows)
    parts = {part: [row for row in rows if row.part == part] for part in places}
    names = table.class_names
    sets = {
        part: _indexed(rows, names, places[part], channels, several)
        for part, rows in parts.items()
    }
    if "validation" not in sets:
        shares = {name: share for name, share in SHARES.items() if name not in sets}
        shares = with_validation(shares, validation_share)
        images, groups = sets.pop(first), [row.group for row in parts[first]]
        any_group = groups if any(group is not None for group in groups) else None
        chosen = split(images.labels, shares, names, groups=any_group)
        sets |= {part: images.part(numbers) for part, numbers in chosen.items()}
    if empty := [part for part, images in sets.items() if not len(images)]:
        raise ValueError(
            f"{path} has too few images: none is left for {empty[0]}. Add images, or a "
            "column `split`."
        )
    test_name = "test" if "test" in sets else "validation"
    sets.setdefault("test", sets["validation"])
    return labelled(sets, names, test_name)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Returns rows by class, and then by file."""
    return sorted(rows, key=lambda row: (row.labels, row.file))


def _indexed(
    rows: Sequence[Row],
    names: Sequence[str],
    root: Path,
    channels: int,
    several: bool,
) -> IndexedImages:
    items = [row.file for row in rows]
    relative = [Path(os.path.relpath(path, root)).as_posix() for path in items]
    places = {name: i for i, name in enumerate(names)}
    if several:
        labels = np.zeros((len(rows), len(names)), "uint8")
        for i, row in enumerate(rows):
            labels[i, [places[name] for name in row.labels]] = 1
    else:
        labels = np.array([places[row.labels[0]] for row in rows], "int32")
    return IndexedImages(items, labels, relative, channels)
