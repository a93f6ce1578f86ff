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


def read_additions(path: Path, organisation: str) -> dict[str, Entry]:
    """Returns {name: entry} of the tables that earlier runs wrote.

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
    prefix = f"{organisation}/".lower()
    return {name_of(e): e for e in entries if e.source.lower().startswith(prefix)}


def write_additions(path: Path, entries: dict[str, Entry]) -> None:
    """Writes the tables of entries, in the order of the manifest, atomically."""
    order = [name for name in map(name_of, manifest.entries()) if name in entries]
    tables = [as_toml(entries[name]) for name in order]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "\n".join([HEAD, *(f"{t}\n" for t in tables)]).encode())
