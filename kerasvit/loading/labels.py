"""Reading and checking of class names."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

MAX_BYTES = 10_000_000  # size limit of a file of names in bytes


def read_labels(label_names: Any) -> list[str] | str | None:
    """Reads class names in the order of the head.

    Args:
        label_names: List or array of str, "imagenet1k", the path of a UTF-8 text file
            with one name per line, or None.

    Raises:
        ValueError: The type is wrong, or names are empty or not unique.
    """
    if label_names is None:
        return None
    if isinstance(label_names, str) and label_names == "imagenet1k":
        return label_names
    path = isinstance(label_names, (str, os.PathLike))
    names = _lines(Path(label_names).expanduser()) if path else label_names
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if (
        not isinstance(names, (list, tuple))
        or not names
        or not all(isinstance(name, str) and name.strip() for name in names)
    ):
        raise ValueError(
            "`label_names` must be a list of names, none of them empty, the path of a "
            'text file with one name a line, or "imagenet1k". Received: '
            f"{label_names!r:.200}."
        )
    broken = [name for name in names if not _is_unicode(name)]
    if broken:
        raise ValueError(
            "`label_names` must be text that UTF-8 can encode. Received: "
            f"{broken!r:.200}."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            "`label_names` must be unique, so that results of `classify` are "
            f"unambiguous. Received more than once: {twice!r:.200}."
        )
    return list(names)


def check_count(names: list[str] | str | None, classes: int) -> None:
    """Raises a `ValueError` if the number of names is not the number of classes.

    Args:
        names: Result of `read_labels`.
        classes: Number of classes of the head.
    """
    count = 1000 if names == "imagenet1k" else len(names or ())
    if names is not None and count != classes:
        raise ValueError(
            f"`label_names` must name each class of the head, {classes}. Received: "
            f"{count} names. Pass all names, or `num_classes={count}` for a fresh head "
            "of that size."
        )


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(
                f"`label_names`: {path} is too large to be a list of names."
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            "`label_names` must be the path of a UTF-8 text file with one name a line, "
            f"or a list of names. {str(path)!r:.200} cannot be read: {error}."
        ) from error
    return [line.strip() for line in text.rstrip().split("\n")]
