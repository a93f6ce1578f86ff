"""From sources.toml, which people edit, to the manifest that the package reads.

    python -m weights.lock              writes the manifest; needs no network
    python -m weights.lock --pin        adds revision, size and sha256 where they miss
    python -m weights.lock --pin --again        looks at every entry anew

Pins are kept from one run to the next and written after every entry, so that a run that
was stopped goes on. What is gone, or is not what the pin says, is reported in the end,
and its old pin stays.
"""

import argparse
import hashlib
import json
import os
import sys
import tomllib
import urllib.request
from pathlib import Path

from kerasvit.hub.manifest import MANIFEST, Entry

SOURCES = Path(__file__).with_name("sources.toml")
PINS = ("revision", "size", "sha256")


def lock(sources=SOURCES, manifest=MANIFEST) -> list[dict]:
    """The manifest's entries: what the sources say, with the pins there are.

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
        before = old.get(_place(entry), {})
        pins = {key: before[key] for key in PINS if key in before}
        entries.append({**entry, **pins})
    return entries


def write(entries, manifest=MANIFEST):
    """Writes the manifest, whole or not at all."""
    text = json.dumps({"format_version": 1, "weights": entries}, indent=1) + "\n"
    unfinished = Path(manifest).with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, manifest)


def pin(entry: Entry) -> dict:
    """Revision, size and sha256 of what the source has now."""
    if entry.on_hub:
        from huggingface_hub import HfApi

        info = HfApi().model_info(entry.source, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings}
        if entry.filename not in files:
            raise ValueError(f"no {entry.filename}, only {', '.join(files)}")
        file = files[entry.filename]
        return {
            "revision": info.sha,
            "size": file.size,
            "sha256": file.lfs and file.lfs.sha256,
        }
    digest, size = hashlib.sha256(), 0
    with urllib.request.urlopen(entry.source, timeout=60) as answer:
        while piece := answer.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return {"size": size, "sha256": digest.hexdigest()}


def pin_all(entries, again, manifest=MANIFEST) -> list[str]:
    """Pins what is not pinned; what could not be done, in words."""
    problems = []
    for i, entry in enumerate(entries):
        known = {key: entry[key] for key in PINS if entry.get(key)}
        if known and not again:
            continue
        bare = {key: value for key, value in entry.items() if key not in PINS}
        try:
            found = pin(Entry(**bare))
        except Exception as error:  # whatever: the others are still to be pinned
            problems.append(f"{entry['model']} {entry['tag']}: {error}")
            continue
        if known and known.get("sha256") != found["sha256"]:
            problems.append(
                f"{entry['model']} {entry['tag']}: {entry['source']} has changed. Its "
                "old pin is kept; remove it from the manifest to take the new file."
            )
            continue
        entries[i] = {**bare, **found}
        write(entries, manifest)
    return problems


def _place(entry):
    return entry["model"], entry["tag"], entry["source"]


def main(arguments):
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    entries = lock()
    write(entries)
    problems = pin_all(entries, options.again) if options.pin else []
    pinned = sum("sha256" in entry for entry in entries)
    print(f"{MANIFEST.name}: {len(entries)} weights, {pinned} pinned")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
