"""From sources.toml, which people edit, to the manifest that the package reads.

    python -m weights.lock              writes the manifest; needs no network
    python -m weights.lock --pin        adds revision, size and sha256 where they miss
    python -m weights.lock --pin ViTB16/sam             of these alone
    python -m weights.lock --pin --again                looks at every entry anew

Pins are kept from one run to the next and written after every entry, so that a run that
was stopped goes on. A file from an address is downloaded for it, checked, and kept in
the cache; the Hub is only asked. What is gone, or is not what the pin says, is reported
in the end, and its old pin stays.
"""

import argparse
import difflib
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasvit.checkpoints import replace_file
from kerasvit.hub.errors import client_errors, is_passing, retried
from kerasvit.hub.hashes import file_hash
from kerasvit.hub.http import fetch_address
from kerasvit.hub.manifest import MANIFEST, Entry

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

SOURCES = Path(__file__).with_name("sources.toml")
PINS = ("revision", "size", "sha256")


def lock(sources: Path = SOURCES, manifest: Path = MANIFEST) -> list[dict]:
    """The manifest's entries: what the sources say, with the pins there are.

    Where the sources hold any pin, theirs alone count.

    Raises:
        ValueError: The sources are wrong; the message says where.
    """
    wanted = tomllib.loads(Path(sources).read_text(encoding="utf-8"))["weights"]
    old = {}
    if Path(manifest).exists():
        found = json.loads(Path(manifest).read_text(encoding="utf-8"))["weights"]
        old = {_place(entry): entry for entry in found}
    seen, entries = set(), []
    for entry in wanted:
        name = (entry.get("model"), entry.get("tag"))
        if name in seen:
            raise ValueError(f"{SOURCES.name} has {name} twice.")
        seen.add(name)
        try:
            Entry(**entry)
        except TypeError as error:
            raise ValueError(f"{SOURCES.name}, {name}: {error}") from error
        before = {} if entry.keys() & {*PINS} else old.get(_place(entry), {})
        pins = {key: before[key] for key in PINS if key in before}
        entries.append({**entry, **pins})
    return entries


def recipes() -> dict[str, str]:
    """How variants are trained from scratch, as the sources say it."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))["recipes"]


def write(entries: list[dict], manifest: Path = MANIFEST) -> None:
    """Writes the manifest, whole or not at all."""
    content = {"format_version": 1, "recipes": recipes(), "weights": entries}
    replace_file(manifest, (json.dumps(content, indent=1) + "\n").encode())


def pin(entry: Entry, again: bool = False) -> dict:
    """Revision, size and sha256 of what the source has now.

    Args:
        entry: What it says of size and sha256, the file at an address must have.
        again: Whether to download a file that the cache has.

    Raises:
        ValueError: The repository has no such file.
        OSError: The file cannot be had, or is not what its server has.
    """
    if entry.on_hub:
        info = _ask_hub(entry.source)
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


def _ask_hub(repository: str) -> "ModelInfo":
    """Commit and files of a repository; asked as anybody, for all here are public."""
    from huggingface_hub import HfApi

    client = HfApi(token=False)
    return retried(
        lambda: client.model_info(repository, files_metadata=True), is_passing
    )


def pin_all(
    entries: list[dict],
    again: bool,
    names: Sequence[str] = (),
    manifest: Path = MANIFEST,
) -> list[str]:
    """Pins what is not pinned; what could not be done, in words.

    Args:
        entries: As of `lock`; changed in place, and written after each.
        again: Whether to look at what is pinned, too.
        names: "MODEL/TAG" of those to pin; none: all.
        manifest: Path of the file to write.
    """
    problems = []
    for i, entry in enumerate(entries):
        known = {key: entry[key] for key in PINS if entry.get(key)}
        if (names and _name(entry) not in names) or (known and not again):
            continue
        try:
            found = pin(Entry(**entry), again)
            if known and known.get("sha256") != found["sha256"]:
                raise ValueError(f"{entry['source']} has changed.")
        except client_errors(ValueError) as error:  # the others are still pinned
            kept = " Its old pin is kept; remove it to take another file."
            problems.append(f"{_name(entry)}: {error}{kept if known else ''}")
            continue
        bare = {key: value for key, value in entry.items() if key not in PINS}
        entries[i] = {**bare, **found}
        write(entries, manifest)
    return problems


def check_names(entries: list[dict], names: Sequence[str]) -> None:
    """Raises a `ValueError` for a name that no entry has; with those like it."""
    known = [_name(entry) for entry in entries]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known) or known[:3]
            raise ValueError(
                f"{SOURCES.name} has no {name!r}, but {', '.join(near)}, and others."
            )


def _name(entry: dict) -> str:
    return f"{entry['model']}/{entry['tag']}"


def _place(entry: dict) -> tuple[str, str, str]:
    return entry["model"], entry["tag"], entry["source"]


def main(arguments: list[str]) -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.lock",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="MODEL/TAG", help="pin these alone")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    if (options.names or options.again) and not options.pin:
        parser.error("names and --again are of --pin")
    try:
        entries = lock()
        check_names(entries, options.names)
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
