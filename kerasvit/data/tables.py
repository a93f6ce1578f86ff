"""Reads a table of images and labels: a CSV, or JSON Lines.

read_table(path)                      # one label per image
read_table(path, task="multilabel")   # several, or none

path,label,split,group      path,cat,dog       {"path": "0.jpg", "labels": ["cat"]}
photos/0.jpg,cat|dog,train,a    0.jpg,1,0
"""

import csv
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .folders import SPLITS, SUFFIXES

Task: TypeAlias = Literal["single_label", "multilabel"]
TASKS = ("single_label", "multilabel")
COLUMNS = {  # {column: its spellings}
    "path": ("path", "file", "filename", "image"),
    "label": ("label", "class", "labels"),
    "split": ("split",),  # optional
    "group": ("group",),  # optional
}
PARTS = {spelling: part for part, names in SPLITS.items() for spelling in names}
_SEVERAL = 'for images with several labels or none, give the task "multilabel"'
SEPARATOR = "|"  # of several labels in a column


@dataclasses.dataclass(frozen=True)
class Row:
    """An image of a table.

    Attributes:
        line: Number of its line, from 1.
        file: Path of the image.
        labels: Sorted names of its classes.
        part: "train", "validation", "test", or "all" if the table has no splits.
        group: What is never divided between parts, such as a patient; None: the image.
    """

    line: int
    file: Path
    labels: tuple[str, ...]
    part: str
    group: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """Images and their labels.

    Attributes:
        rows: At least one, each of another file.
        class_names: Names of the classes: sorted, or in the order of their columns.
    """

    rows: list[Row]
    class_names: list[str]


def read_table(
    table: Path, task: Task = "single_label", training: bool = True
) -> Table:
    """Returns the images of a table.

    Args:
        table: CSV in UTF-8 with a header, or JSON Lines with the suffix .jsonl. Paths
            are relative to its folder. The column `split` has train, validation or
            test; without it the one part is "all".
        task: "single_label", or "multilabel" for images with several labels or none:
            a|b in the column `label`, one column of 0 and 1 per class, or a list
            `labels`.
        training: Whether a model is trained on it: each class must have training
            images then.

    Raises:
        ValueError: The file cannot be read, a row is wrong, or a class has no training
            images; the message has the number of the line.
    """
    is_lines = table.suffix.lower() in (".jsonl", ".ndjson")
    read = _read_lines if is_lines else _read_csv
    rows: list[Row] = []
    lines: dict[str, int] = {}
    groups: dict[str | None, Row] = {}
    columns: list[str] = []
    for line, values in read(table, task):
        try:
            row = _row(line, values, table.parent, task)
            place = os.path.abspath(row.file)
            if place in lines:
                raise ValueError(f"{values['path']} is in line {lines[place]}, too")
            if rows and (row.part == "all") != (rows[0].part == "all"):
                raise ValueError("give a split in all lines, or in none")
            first = groups.setdefault(row.group, row)
            if row.group is not None and first.part != row.part:
                raise ValueError(
                    f"the group {row.group!r} is in {row.part}, and in line "
                    f"{first.line} in {first.part}; one group must be in one part"
                )
        except ValueError as error:
            raise ValueError(f"{table}, line {line}: {error}.") from error
        columns = values.get("columns", columns)
        lines[place] = line
        rows.append(row)
    if not training:
        named = {label for row in rows for label in row.labels}
        return Table(rows, columns or sorted(named))
    trained = {
        label for row in rows if row.part in ("all", "train") for label in row.labels
    }
    least = 1 if task == "multilabel" else 2
    if task == "single_label":
        _check_single(table, rows, trained)
    _check_classes(table, rows, columns, trained, least)
    return Table(rows, columns or sorted(trained))


def _check_single(table: Path, rows: list[Row], trained: set[str]) -> None:
    """Raises a `ValueError` for a label such as a|b, if a or b are classes, too."""
    for row in rows:
        parts = row.labels[0].split(SEPARATOR)
        if len(parts) > 1 and trained.intersection(parts):
            raise ValueError(
                f"{table}, line {row.line}: expected one label, received "
                f"{row.labels[0]}. For images with several labels or none, give the "
                'task "multilabel".'
            )


def _check_classes(
    table: Path, rows: list[Row], columns: list[str], trained: set[str], least: int
) -> None:
    """Raises a `ValueError` for a class without training images, or too few classes."""
    for row in rows:
        if missing := [label for label in row.labels if label not in trained]:
            raise ValueError(
                f"{table}, line {row.line}: the class {missing[0]!r} is in {row.part}, "
                "but has no images in train."
            )
    if empty := [name for name in columns if name not in trained]:
        raise ValueError(
            f"{table}: no image has the class {empty[0]!r}. Remove its column, or add "
            "images."
        )
    if len(trained) < least:
        raise ValueError(
            f"{table} has {len(trained)} classes for training. A classifier "
            f"needs {'two or more' if least == 2 else 'one or more'}."
        )


def _row(line: int, values: dict[str, Any], folder: Path, task: Task) -> Row:
    """Returns the checked row of values {column: text, or list of labels}."""
    path, split, group = (values.get(name) for name in ("path", "split", "group"))
    if not path:
        raise ValueError("the path is empty")
    labels = values["labels"]
    if len(set(labels)) < len(labels):
        raise ValueError(f"a label is there twice: {', '.join(labels)}")
    if any(not label for label in labels):
        raise ValueError(
            f"the label is empty; {_SEVERAL}"
            if task == "single_label"
            else "a label is empty; an image without labels has the list [], or "
            "nothing in its column"
        )
    if task == "single_label" and len(labels) != 1:
        raise ValueError(
            f"expected one label, received {', '.join(labels) or 'none'}; {_SEVERAL}"
        )
    if split is not None and split.lower() not in PARTS:
        if not split:
            raise ValueError("the split is empty")
        raise ValueError(f"the split must be train, validation or test, not {split!r}")
    if group == "":
        raise ValueError("the group is empty")
    file = folder / path
    _check_file(file)
    part = PARTS[split.lower()] if split else "all"
    return Row(line, file, tuple(sorted(labels)), part, group)


def _check_file(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{file.name} has none of the extensions {', '.join(sorted(SUFFIXES))}"
        )
    if not file.is_file():
        raise ValueError(f"there is no file {file}")


def _read_csv(table: Path, task: Task) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line, values) of the rows of a CSV.

    `values` has the path, the labels, and split and group if there are such columns;
    `columns` are the classes that have a column of their own.
    """
    try:
        with table.open(encoding="utf-8-sig", newline="") as opened:
            read = csv.reader(opened, strict=True)
            numbered = [(read.line_num, row) for row in read if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{table} is no CSV in UTF-8: {error}.") from error
    if not numbered:
        raise ValueError(f"{table} is empty. Expected: a header path,label.")
    (_, header), *numbered = numbered
    places, classes = _columns(header, table, task)
    for line, row in numbered:
        try:
            if len(row) != len(header):
                raise ValueError(
                    f"expected {len(header)} values as in the header, received "
                    f'{len(row)}; a value with a comma needs quotes, "a, b"'
                )
            found: dict[str, Any] = {
                column: row[i].strip() for column, i in places.items()
            }
            text = found.pop("label", None)
            if text is None:
                found["columns"] = list(classes)
                found["labels"] = [
                    name for name, i in classes.items() if _is_one(row[i], name)
                ]
            elif task == "multilabel":
                parts = text.split(SEPARATOR) if text else []
                found["labels"] = [part.strip() for part in parts]
            else:
                found["labels"] = [text]
        except ValueError as error:
            raise ValueError(f"{table}, line {line}: {error}.") from error
        yield line, found


def _is_one(text: str, column: str) -> bool:
    """Whether a value of a class's column is 1, and not 0."""
    if text.strip() not in ("0", "1", "0.0", "1.0"):
        raise ValueError(f"the column {column} must have 0 or 1, not {text!r}")
    return text.strip().startswith("1")


def _columns(
    header: list[str], table: Path, task: Task
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns {column: index}, and {class: index} of columns that are classes."""
    names = [name.strip().lower() for name in header]
    found = {
        column: [i for i, name in enumerate(names) if name in spellings]
        for column, spellings in COLUMNS.items()
    }
    several = task == "multilabel"
    expected = [len(indices) for indices in found.values()]
    if expected[0] != 1 or max(expected) > 1 or not (several or expected[1]):
        raise ValueError(
            f"{table}, line 1 must be a header with one column path (or file, "
            "filename, image) and one column label (or class), and perhaps one column "
            f"split and one column group, with commas between them. Received: "
            f"{','.join(header)}."
        )
    places = {column: indices[0] for column, indices in found.items() if indices}
    if "label" in places:
        return places, {}
    others = [i for i in range(len(header)) if i not in places.values()]
    classes = {header[i].strip(): i for i in others}
    if len(classes) < len(others) or "" in classes or not classes:
        raise ValueError(
            f"{table}, line 1: without a column label, each column besides path, split "
            "and group is a class of 0 and 1, with a name of its own. Received: "
            f"{','.join(header)}."
        )
    return places, classes


def _read_lines(table: Path, task: Task) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line, values) of JSON Lines, as `_read_csv` does."""
    try:
        lines = table.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{table} is no text in UTF-8: {error}.") from error
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            yield line, _of_json(text, task)
        except ValueError as error:
            raise ValueError(f"{table}, line {line}: {error}.") from error


def _of_json(text: str, task: Task) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('expected {"path": "0.jpg", "labels": ["cat"]}')
    values = {}
    for column in ("path", "split", "group"):
        value = found.get(column)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"`{column}` must be a text, not {value!r:.100}")
        values[column] = value and value.strip()
    labels = found.get("labels", found.get("label"))
    if isinstance(labels, str) and task == "single_label":
        labels = [labels]
    if not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
        raise ValueError(f"`labels` must be a list of texts, not {labels!r:.100}")
    return {**values, "labels": [label.strip() for label in labels]}
