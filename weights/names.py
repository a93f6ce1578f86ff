"""Names of the catalogue's weights, patterns of names, and the order to check them."""

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

import kerasvit
from kerasvit.hub.manifest import Entry, read_manifest
from kerasvit.patterns import near

_UNITS = {"MB": 1, "GB": 1e3, "TB": 1e6}  # in megabytes


def name_of(entry: Entry) -> str:
    """Returns "MODEL/TAG"."""
    return f"{entry.model}/{entry.tag}"


def read_entries(manifest: Path) -> list[dict]:
    """Returns the tables of a manifest.

    Raises:
        ValueError: The manifest is damaged, or newer than this package.
    """
    content = read_manifest(manifest)
    try:
        tables = [dict(table) for table in content["weights"]]
        models = {Entry(**table).model for table in tables}
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{manifest} is damaged: {error}. Restore it: git checkout {manifest.name}."
        ) from error
    if unknown := sorted(name for name in models if not hasattr(kerasvit, name)):
        raise ValueError(
            f"{manifest} has weights of {', '.join(unknown)}, which this kerasvit does "
            "not have: update kerasvit."
        )
    return tables


def chosen(entries: Sequence[Entry], patterns: Sequence[str]) -> list[Entry]:
    """Returns the entries whose names match a pattern; all if there are no patterns.

    Args:
        entries: All entries.
        patterns: Shell patterns of "MODEL/TAG"; case is ignored. A pattern without "/"
            is one of models.

    Raises:
        ValueError: A pattern matches no name; the message lists similar names.
    """
    names = [name_of(entry) for entry in entries]
    found = set()
    for pattern in patterns:
        complete = (pattern if "/" in pattern else f"{pattern}/*").lower()
        matches = [
            name for name in names if fnmatch.fnmatchcase(name.lower(), complete)
        ]
        if not matches:
            similar = near(names, pattern) or near([e.model for e in entries], pattern)
            hint = f"Similar names: {', '.join(similar)}." if similar else ""
            raise ValueError(
                f"No name of the catalogue matches {pattern!r}. {hint} "
                "kerasvit.list_weights() lists all."
            )
        found.update(matches)
    return [entry for entry in entries if not patterns or name_of(entry) in found]


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Sorts entries: one file of each format and family, then the others.

    Both parts begin with the smallest file. The sizes are those of the catalogue, so
    that the order does not change when files are pinned.
    """
    by_size = sorted(entries, key=lambda entry: (entry.megabytes, name_of(entry)))
    kinds: dict[tuple, Entry] = {}
    for entry in by_size:
        kinds.setdefault((entry.format, *family_of(entry)), entry)
    first = {name_of(entry) for entry in kinds.values()}
    return sorted(by_size, key=lambda entry: name_of(entry) not in first)


def family_of(entry: Entry) -> tuple[str, str, frozenset[str]]:
    """Returns what the variants of a family have in common, such as DeiT III.

    Returns:
        (name of the builder, beginning of the architecture's name, names of the
        arguments that define a variant).
    """
    variant = getattr(kerasvit, entry.model)
    names = frozenset(variant.arguments)
    return variant.builder.__name__, variant.architecture, names


def parse_budget(text: str) -> float:
    """Returns the megabytes of a text such as "200GB".

    Raises:
        ValueError: The text is not a positive number with a unit.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MGT]B)", text.strip(), re.IGNORECASE)
    if not found or not float(found[1]):
        raise ValueError(
            '`--budget` must be a number with a unit, MB, GB or TB, such as "200GB". '
            f"Received: {text!r}."
        )
    return float(found[1]) * _UNITS[found[2].upper()]


def within(
    entries: Sequence[Entry], megabytes: float | None
) -> tuple[list[Entry], list[Entry]]:
    """Splits entries before the sum of their sizes exceeds a budget.

    The sum includes files that an earlier run downloaded, so that a run that was
    interrupted and continued reaches the same names.

    Returns:
        (entries within the budget, entries that are not reached).
    """
    total = 0.0
    for i, entry in enumerate(entries):
        total += entry.megabytes
        if megabytes is not None and total > megabytes:
            return [*entries[:i]], [*entries[i:]]
    return [*entries], []
