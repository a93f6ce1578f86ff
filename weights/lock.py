"""Writes the package's manifest.json from sources.toml, and pins files.

    python -m weights.lock              writes the manifest; needs no network
    python -m weights.lock --pin        adds missing revisions, sizes and hashes
    python -m weights.lock --pin ViTB16/sam             pins only these entries
    python -m weights.lock --pin --again                checks pinned entries, too

Existing pins are kept, and the manifest is written after every entry, so that an
interrupted run can be continued. The Hub states size and hash of its files; a file at
another address is downloaded into the cache and checked. Files that are missing or
differ from their pins are listed at the end, and their pins are kept.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasvit.checkpoints import replace_file
from kerasvit.hub.errors import client_errors, is_passing, retried
from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import FORMAT_VERSION, MANIFEST, Entry, read_manifest
from kerasvit.hub.servers import fetch_address

from .names import chosen, name_of
from .servers import check_servers

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

SOURCES = Path(__file__).with_name("sources.toml")
PINS = ("revision", "size", "sha256")


def lock(sources: Path = SOURCES, manifest: Path = MANIFEST) -> list[dict]:
    """Returns the entries of the sources with the pins of the manifest.

    An entry with any pin in the sources keeps only the pins of the sources.

    Raises:
        ValueError: The sources contain an error; the message names the entry. Or the
            manifest is damaged, or newer than this package.
    """
    tables = tomllib.loads(Path(sources).read_text(encoding="utf-8"))["weights"]
    old = {}
    if Path(manifest).exists():
        written = read_manifest(Path(manifest))["weights"]
        old = {_key(entry): entry for entry in written}
    seen, entries = set(), []
    for entry in tables:
        name = (entry.get("model"), entry.get("tag"))
        if name in seen:
            raise ValueError(f"{SOURCES.name} has {name} twice.")
        seen.add(name)
        try:
            Entry(**entry)
        except TypeError as error:
            raise ValueError(f"{SOURCES.name}, {name}: {error}") from error
        pinned = {} if entry.keys() & {*PINS} else old.get(_key(entry), {})
        pins = {key: pinned[key] for key in PINS if key in pinned}
        entries.append({**entry, **pins})
    return entries


def recipes() -> dict[str, str]:
    """Returns the options of recipes/pretrain.py per variant, from the sources."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))["recipes"]


def write(entries: list[dict], manifest: Path = MANIFEST) -> None:
    """Writes the manifest atomically."""
    content: dict[str, Any] = {"format_version": FORMAT_VERSION}
    content |= {"recipes": recipes(), "weights": entries}
    replace_file(manifest, (json.dumps(content, indent=1) + "\n").encode())


def pin(entry: Entry, again: bool = False, info: "ModelInfo | None" = None) -> dict:
    """Returns the current pins of an entry: revision, size and sha256.

    Args:
        entry: Entry to pin. A file at an address must match its size and sha256.
        again: Whether to download a file that is in the cache.
        info: Answer of `repository_info` for a repository; None to request it.

    Raises:
        ValueError: The repository has no such file.
        OSError: The download fails or does not match the hash that the server states.
    """
    if entry.on_hub:
        info = info or repository_info(entry.source)
        files = {file.rfilename: file for file in info.siblings or ()}
        if entry.filename not in files:
            raise ValueError(f"no {entry.filename}, only {', '.join(files)}")
        file = files[entry.filename]
        return {
            "revision": info.sha,
            "size": file.size,
            "sha256": file.lfs and file.lfs.sha256,
        }
    path = fetch_address(entry.source, entry.size, entry.sha256, again=again)
    return {"size": path.stat().st_size, "sha256": file_hash(path)}


def repository_info(repository: str, revision: str | None = None) -> "ModelInfo":
    """Returns commit, files and card of a public repository; sends no token.

    Args:
        repository: "user/name".
        revision: Commit or branch; None for main.
    """
    from huggingface_hub import HfApi

    client = HfApi(token=False)
    return retried(
        lambda: client.model_info(repository, revision=revision, files_metadata=True),
        is_passing,
    )


def pin_all(
    entries: list[dict],
    again: bool,
    names: Sequence[str] = (),
    manifest: Path = MANIFEST,
) -> list[str]:
    """Pins entries that have no pins.

    Args:
        entries: Entries as returned by `lock`; changed in place. The manifest is
            written after each.
        again: Whether to check pinned entries, too.
        names: Patterns of the entries to pin, as for `chosen`; empty for all.
        manifest: Path of the file to write.

    Returns:
        One sentence per entry that could not be pinned.

    Raises:
        ValueError: A pattern matches no name; the message lists similar names.
    """
    selected = chosen([Entry(**entry) for entry in entries], names)
    problems = []
    for i, entry in enumerate(entries):
        asked = Entry(**entry)
        old = {key: entry[key] for key in PINS if entry.get(key)}
        if asked not in selected or (old and not again):
            continue
        try:
            found = pin(asked, again)
            if old and old.get("sha256") != found["sha256"]:
                raise ValueError(f"{entry['source']} has changed.")
        except client_errors(ValueError) as error:  # the next entries are pinned
            kept = " Its old pin is kept; remove it to pin another file."
            problems.append(f"{name_of(asked)}: {error}{kept if old else ''}")
            continue
        unpinned = {key: value for key, value in entry.items() if key not in PINS}
        entries[i] = {**unpinned, **found}
        write(entries, manifest)
    return problems


def _key(entry: dict) -> tuple[str, str, str]:
    return entry["model"], entry["tag"], entry["source"]


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.lock",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="PATTERN", help="pin only these, such as 'ViT*/sam'"
    )
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    if (options.names or options.again) and not options.pin:
        parser.error("names and --again need --pin")
    try:
        entries = lock()
        selected = chosen([Entry(**entry) for entry in entries], options.names)
        if options.pin:
            check_servers(selected, MANIFEST)
        write(entries)
        problems = pin_all(entries, options.again, options.names) if options.pin else []
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    pinned = sum("sha256" in entry for entry in entries)
    print(f"{MANIFEST.name}: {len(entries)} weights, {pinned} pinned")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
