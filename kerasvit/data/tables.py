"""Reads a CSV of images and labels.

read_table(path)    # {"all": {"cat": [files], "dog": [files]}}

path,label,split
photos/0.jpg,cat,train
"""

import csv
from pathlib import Path

from .folders import SPLITS, SUFFIXES

COLUMNS = {  # of a CSV: {column: its spellings}
    "path": ("path", "file", "filename", "image"),
    "label": ("label", "class"),
    "split": ("split",),  # optional
}
PARTS = {spelling: part for part, names in SPLITS.items() for spelling in names}


def read_table(table: Path) -> dict[str, dict[str, list[Path]]]:
    """Returns {part: {class: files in the order of their names}}.

    Args:
        table: CSV in UTF-8 with a header. Paths are relative to its folder. The column
            `split` has train, validation or test; without it the one part is "all".

    Raises:
        ValueError: The file cannot be read, a row is wrong, or a class has no training
            images; the message has the number of the line.
    """
    try:
        with table.open(encoding="utf-8-sig", newline="") as opened:
            rows = csv.reader(opened, strict=True)
            numbered = [(rows.line_num, row) for row in rows if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{table} is no CSV in UTF-8: {error}.") from error
    if not numbered:
        raise ValueError(f"{table} is empty. Expected: a header path,label.")
    (_, header), *numbered = numbered
    places = _columns(header, table)
    found: dict = {}
    lines: dict = {}  # {file: line}
    first: dict = {}  # {(part, class): line}
    for line, row in numbered:
        try:
            path, label, part = _values(row, header, places)
            file = table.parent / path
            _check_file(file)
            if file in lines:
                raise ValueError(f"{path} is in line {lines[file]}, too")
        except ValueError as error:
            raise ValueError(f"{table}, line {line}: {error}.") from error
        lines[file] = line
        first.setdefault((part, label), line)
        found.setdefault(part, {}).setdefault(label, []).append(file)
    _check_parts(found, first, table)
    return {
        part: {label: sorted(named[label]) for label in sorted(named)}
        for part, named in found.items()
    }


def _values(
    row: list[str], header: list[str], places: dict[str, int]
) -> tuple[str, str, str]:
    """Returns (path, label, part) of a row."""
    if len(row) != len(header):
        raise ValueError(
            f"expected {len(header)} values as in the header, received {len(row)}; "
            'a value with a comma needs quotes, "a, b"'
        )
    values = {column: row[i].strip() for column, i in places.items()}
    if empty := [column for column, value in values.items() if not value]:
        raise ValueError(f"the {empty[0]} is empty")
    split = values.get("split")
    if split is not None and split.lower() not in PARTS:
        raise ValueError(f"the split must be train, validation or test, not {split!r}")
    return values["path"], values["label"], PARTS[split.lower()] if split else "all"


def _check_file(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{file.name} has none of the extensions {', '.join(sorted(SUFFIXES))}"
        )
    if not file.is_file():
        raise ValueError(f"there is no file {file}")


def _check_parts(found: dict, first: dict, table: Path) -> None:
    trained = found.get("all") or found.get("train") or {}
    for (part, label), line in first.items():
        if label not in trained:
            raise ValueError(
                f"{table}, line {line}: the class {label!r} is in {part}, but "
                "has no images in train."
            )
    if len(trained) < 2:
        raise ValueError(
            f"{table} has {len(trained)} classes for training. A classifier "
            "needs two or more."
        )


def _columns(header: list[str], table: Path) -> dict[str, int]:
    """Returns {column: index}, without the split if there is none."""
    names = [name.strip().lower() for name in header]
    places = {}
    for column, spellings in COLUMNS.items():
        indices = [i for i, name in enumerate(names) if name in spellings]
        if len(indices) > 1 or (not indices and column != "split"):
            raise ValueError(
                f"{table}, line 1 must be a header with one column path (or "
                "file, filename, image) and one column label (or class), and perhaps "
                f"one column split. Received: {','.join(header)}."
            )
        if indices:
            places[column] = indices[0]
    return places
