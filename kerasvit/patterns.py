"""Selects names by pattern, for `list_models` and `list_weights`."""

import difflib
import fnmatch


def chosen(names, pattern) -> list[str]:
    """Returns the names that a pattern matches, ignoring case.

    Args:
        names: List of str.
        pattern: With *, ? or [ a shell pattern of the whole name; without, a part of
            it.

    Raises:
        ValueError: The pattern is no text.
    """
    if not isinstance(pattern, str):
        raise ValueError(
            '`pattern` must be a name in quotes, such as "ViTB16" or "mixer*". '
            f"Received: {pattern!r}."
        )
    wanted = pattern.lower()
    if not set(wanted) & set("*?["):
        return [name for name in names if wanted in name.lower()]
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), wanted)]


def near(names, pattern) -> list[str]:
    """Returns names similar to a pattern that matches none."""
    lower = {name.lower(): name for name in names}
    wanted = pattern.lower().strip("*?")
    return [
        lower[name] for name in difflib.get_close_matches(wanted, lower, cutoff=0.5)
    ]
