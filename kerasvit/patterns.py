"""Selects names by pattern, for `list_models` and `list_weights`."""

import difflib
import fnmatch
from collections.abc import Iterable
from typing import Any


def chosen(names: Iterable[str], pattern: Any) -> list[str]:
    """Returns the names that a pattern matches, ignoring case.

    Args:
        names: Names to select from.
        pattern: String. With *, ? or [ it is a shell pattern of the whole name;
            without, a part of the name.

    Raises:
        ValueError: The pattern is not a string.
    """
    if not isinstance(pattern, str):
        raise ValueError(
            '`pattern` must be a name in quotes, such as "ViTB16" or "mixer*". '
            f"Received: {pattern!r}."
        )
    pattern = pattern.lower()
    if not set(pattern) & set("*?["):
        return [name for name in names if pattern in name.lower()]
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), pattern)]


def near(names: Iterable[str], pattern: str) -> list[str]:
    """Returns names similar to a pattern that matches none."""
    lower = {name.lower(): name for name in names}
    text = pattern.lower().strip("*?")
    return [lower[name] for name in difflib.get_close_matches(text, lower, cutoff=0.5)]
