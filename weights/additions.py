"""The tables of published weights that are to be copied into sources.toml."""

import tomllib
from pathlib import Path

from kerasvit.checkpoints import replace_file
from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry

from .names import name_of
from .publish import as_toml

ADDITIONS = "sources.toml.additions"
HEAD = (
    "# Tables of published weights. Replace the tables of the same names in\n"
    "# weights/sources.toml by these, then run: python -m weights.lock\n"
)
Key = tuple[str, str]


def key_of(entry: Entry) -> Key:
    """Returns the name and the repository, of which the Hub ignores the case."""
    return name_of(entry), entry.source.lower()


def read_additions(path: Path) -> dict[Key, Entry]:
    """Returns {key: entry} of the tables that earlier runs wrote.

    Raises:
        ValueError: The file is damaged.
    """
    if not path.exists():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["weights"]
        entries = [Entry(**table) for table in tables]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Remove it; the tables of published names are "
            "written again."
        ) from error
    return {key_of(entry): entry for entry in entries}


def write_additions(path: Path, entries: dict[Key, Entry]) -> None:
    """Writes the tables of entries, in the order of the manifest, atomically."""
    order = [name_of(entry) for entry in manifest.entries()]
    known = [key for key in sorted(entries) if key[0] in order]
    known.sort(key=lambda key: order.index(key[0]))
    tables = [as_toml(entries[key]) for key in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "\n".join([HEAD, *(f"{t}\n" for t in tables)]).encode())
