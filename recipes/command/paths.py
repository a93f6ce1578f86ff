"""Checks of paths that the user gives, before the slow imports."""

import csv
import os
import re
from pathlib import Path

TABLES = (".csv", ".jsonl", ".ndjson")
PATH, LABEL = {"path", "file", "filename", "image"}, {"label", "class", "labels"}
WEIGHTS = (".npz", ".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".pth.tar")


def absolute(name: str) -> str:
    """Returns the absolute path of a file or folder; other names as they are.

    Args:
        name: A path, or a name such as "sam" or "hf://owner/name".
    """
    path = Path(os.path.expanduser(name))
    return str(path.resolve()) if path.exists() else name


def file_name(name: str) -> str:
    """Returns a name without characters that paths do not have."""
    return re.sub(r"[^\w.-]+", "_", name)


def check_name_of(setting: str, path: Path) -> None:
    """Raises a `ValueError` for a path whose name is not UTF-8, as a card needs."""
    try:
        path.name.encode("utf-8")
    except UnicodeEncodeError as error:  # from an old archive or another system
        raise ValueError(
            f"`{setting}`: the name {path.name!r} is not UTF-8 and cannot be written "
            "into the model's card. Rename it."
        ) from error


def existing_data(path) -> Path:
    """Returns the folder or the table of a dataset.

    Raises:
        ValueError: It does not exist.
    """
    found = Path(os.path.expanduser(path))
    is_table = found.suffix.lower() in TABLES
    if found.is_file() and not is_table:
        raise ValueError(
            f"`data`: {path} is a file, and a table must be named .csv or .jsonl."
        )
    if not str(path) or not (found.is_file() if is_table else found.is_dir()):
        raise ValueError(
            f"`data`: there is no {'file' if is_table else 'folder'} {path} (working "
            f"directory: {Path.cwd()}). Give a folder that contains one folder of "
            "images per class, or a table, .csv or .jsonl, with path and label."
        )
    return found


def check_weights(weights: str) -> None:
    """Raises a `ValueError` for a path of weights that does not exist.

    A word without separator and extension, such as "sam", may be the name of public
    weights, which kerasvit checks.
    """
    if weights and ("://" in weights or Path(os.path.expanduser(weights)).exists()):
        return
    has_extension = weights.lower().endswith(WEIGHTS)
    if not weights or has_extension or re.search(r"[/\\~]|^\.", weights):
        on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", weights) and not has_extension
        hub = f" On the Hugging Face Hub: hf://{weights}." if on_hub else ""
        raise ValueError(
            f"`weights`: there is no file or folder {weights} (working directory: "
            f"{Path.cwd()}).{hub}"
        )


def check_teacher(teacher: str) -> None:
    """Raises a `ValueError` for a path of a teacher that does not exist."""
    is_path = teacher.endswith((".keras", *WEIGHTS))
    is_path = is_path or teacher.startswith(("/", ".", "~"))
    if (
        is_path
        and "://" not in teacher
        and not Path(os.path.expanduser(teacher)).exists()
    ):
        raise ValueError(
            f"`teacher`: there is no file or folder {teacher} (working directory: "
            f"{Path.cwd()})."
        )


def check_header(table: Path, task: str) -> None:
    """Raises a `ValueError` if the first line of a CSV is not a header.

    `kerasvit.data.from_table` checks more, after the slow imports.
    """
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            header = next(filter(any, csv.reader(file, strict=True)), None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"`data`: {table} is no CSV in UTF-8: {error}.") from error
    if header is None:  # an empty file is reported later
        return
    names = [name.strip().lower() for name in header]
    count = [sum(name in spellings for name in names) for spellings in (PATH, LABEL)]
    if count[0] != 1 or count[1] > 1 or (count[1] == 0 and task != "multilabel"):
        raise ValueError(
            f"`data`: {table}, line 1 must be a header with one column path (or "
            "file, filename, image) and one column label (or class), separated by "
            "commas, and perhaps split and group; with --task multilabel, a column of "
            f"0 and 1 per class may take the place of label. Received: "
            f"{','.join(header)}."
        )
