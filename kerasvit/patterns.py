"""Selects names of models and weights, and paths of layers, by pattern."""

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any

from .arguments import ArgumentError

# Blocks of our models in the paths of layers and weights: of encoders, and of stages.
# A hybrid has both: the ResNet before its encoder has stages.
ENCODER_BLOCK = r"(^|/)(encoder|mixer)_block_\d+"
STAGE_BLOCK = r"(^|/)stage_\d+_(block|unit)_\d+"


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


def found_in(
    name: str, pattern: Any, paths: list[str], owner: str, hint: str = ""
) -> Callable[[str], Any]:
    """Returns the search of a regular expression that is found in one of the paths.

    Args:
        name: Name of the argument, for errors.
        pattern: Regular expression.
        paths: Paths to choose from.
        owner: What has such a path, such as "a layer", for errors.
        hint: End of the message.

    Raises:
        ArgumentError: It is no regular expression, or in no path; the message names
            similar ones.
    """
    try:
        search = re.compile(pattern).search
    except (re.error, TypeError) as error:
        raise ArgumentError(
            f"`{name}` must be a regular expression. Received: {pattern!r}: {error}.",
            name,
        ) from error
    if not any(map(search, paths)):
        similar = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3)
        raise ArgumentError(
            f"`{name}` must be a regular expression that is found in the path of "
            f"{owner}. Received: {pattern!r}. Examples of paths: "
            f"{similar or paths[:3]}.{hint}",
            name,
        )
    return search
