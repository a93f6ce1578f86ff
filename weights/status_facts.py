"""The facts in status.json: what is proven for each name of the catalogue."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.hub.manifest import Entry

from .contact.results import Result, is_within, read_all
from .disputed import read_measured
from .names import name_of
from .servers import is_local

FACTS = Path(__file__).with_name("status.json")
FORMAT_VERSION = 1
HUB = "huggingface.co"
# What is wrong with the machine or the connection says nothing about the weights.
PASSING = ("server", "space", "images")
# Facts about the pinned file; the others are about a file of random values.
PROOFS = ("loaded", "equal", "failure")
OF_FILE = (*PROOFS, "pins", "top1", "alternatives")

IMAGENET_CLASSES = 1000

Facts = dict[str, Any]


def read_facts(path: Path = FACTS) -> dict[str, Facts]:
    """Returns the facts of each name, "MODEL/TAG".

    Facts have the keys "source" and, if known, "random" (a file of random values was
    loaded; with "equal", the comparisons that passed), "pins", "loaded", "equal"
    (comparisons that passed), "top1", "alternatives" (top-1 with other preprocessing)
    and "failure".

    Raises:
        CheckpointError: The file is damaged or of another format.
    """
    content = read_json(path)
    names = content.get("names", {})
    correct = isinstance(names, dict) and all(
        isinstance(facts, dict) and isinstance(facts.get("source"), str)
        for facts in names.values()
    )
    if content and not (correct and content.get("format_version") == FORMAT_VERSION):
        raise CheckpointError(
            f"{path} is damaged, or of another kerasvit. Restore it with git."
        )
    return names


def valid(facts: Facts, entry: Entry) -> Facts:
    """Returns the facts that hold for an entry: those of its source and pinned file."""
    if facts.get("source") != entry.source:
        return {"source": entry.source}
    pinned = facts.get("pins", {}).get("sha256")
    if entry.sha256 not in (None, pinned):
        return {key: value for key, value in facts.items() if key not in OF_FILE}
    return facts


def merge(facts: Facts, result: Result, entry: Entry) -> tuple[Facts, str | None]:
    """Returns the facts with those of a result, and a sentence if it was not used.

    Args:
        facts: Valid facts of the entry.
        result: Result of the same name.
        entry: Entry of the manifest.
    """
    stamp = {"date": result.date, "kerasvit": result.kerasvit}
    stamp |= {"backend": result.backend}
    if is_local(result.server):
        rest = {key: value for key, value in facts.items() if key != "random"}
        if result.failure:
            return rest, f"the file of random values: {result.failure['message']}"
        random: Facts = dict(stamp)
        if equal := list(filter(_is_equal, result.comparisons)):
            random["equal"] = equal
        return rest | {"random": random}, None
    host = urlsplit(result.server).hostname
    if host != (HUB if entry.on_hub else urlsplit(entry.source).hostname):
        return facts, f"{result.server} is neither its server nor this machine"
    known = [facts[key]["date"] for key in ("loaded", "failure") if key in facts]
    if known and result.date < max(known):
        return facts, "the known facts are newer"
    if result.failure and result.failure["kind"] in PASSING:
        return facts, result.failure["message"]
    if result.pins is None:
        return facts | _failure(result, stamp), None
    sha256 = result.pins["sha256"]
    if entry.sha256 not in (None, sha256):
        return facts, "the result is of another file than the manifest pins"
    replaced = facts.get("pins", {}).get("sha256") != sha256
    # A failure disproves the earlier proofs of the same file.
    old = OF_FILE if replaced else PROOFS if result.failure else ("failure",)
    facts = {key: value for key, value in facts.items() if key not in old}
    facts |= {"pins": result.pins} | _failure(result, stamp)
    if result.loaded:
        facts["loaded"] = stamp
    if equal := [stamp | each for each in result.comparisons if _is_equal(each)]:
        facts["equal"] = equal
    most = facts.get("top1", {}).get("images", 0)
    top1 = result.top1
    if top1 and top1["classes"] < IMAGENET_CLASSES:
        return facts, f"top-1, of {top1['classes']} classes only"
    if top1 and top1["images"] >= most:
        facts["top1"] = stamp | top1
    return facts, None


def merge_all(
    facts: dict[str, Facts], contact: Path, catalogue: Iterable[Entry]
) -> tuple[dict[str, Facts], list[str]]:
    """Returns the facts with all results of a folder, and sentences about the others.

    Args:
        facts: Facts of each name.
        contact: Folder of results, the `--out` of `weights.first_contact`.
        catalogue: Entries of the manifest.

    Raises:
        ValueError: The folder has no results, or a file in it is damaged.
    """
    results, measured = read_all(contact), read_measured(contact)
    if not results and not measured:
        raise ValueError(
            f"`--contact` must be the --out of weights.first_contact. {contact} has no "
            "results."
        )
    entries = {name_of(entry): entry for entry in catalogue}
    facts, unused = dict(facts), []
    for name, result in results.items():
        if name not in entries:
            unused.append(f"{name}: the catalogue has no such name")
            continue
        old = valid(facts.get(name, {}), entries[name])
        facts[name], reason = merge(old, result, entries[name])
        unused += [f"{name}: {reason}"] if reason else []
    for name, values in measured.items():
        mine = facts.get(name, {})
        pins = mine.get("pins") or {}
        few = [each["classes"] < IMAGENET_CLASSES for each in values["top1"].values()]
        if name not in entries or values["sha256"] != pins.get("sha256"):
            unused.append(f"{name}: disputed.json is not of the file that was loaded")
        elif any(few):
            unused.append(f"{name}: disputed.json is not of all ImageNet classes")
        else:
            facts[name] = mine | {"alternatives": values["top1"]}
    return facts, unused


def write_facts(facts: dict[str, Facts], path: Path = FACTS) -> None:
    """Writes the facts of each name atomically."""
    known = {name: each for name, each in facts.items() if each.keys() != {"source"}}
    content = {"format_version": FORMAT_VERSION, "names": dict(sorted(known.items()))}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    replace_file(path, f"{text}\n".encode())


def valid_facts(facts: dict[str, Facts], entries: Iterable[Entry]) -> dict[str, Facts]:
    """Returns the valid facts of every entry."""
    return {name_of(e): valid(facts.get(name_of(e), {}), e) for e in entries}


def _failure(result: Result, stamp: dict) -> Facts:
    return {"failure": stamp | result.failure} if result.failure else {}


def _is_equal(comparison: dict) -> bool:
    return comparison["note"] is None and is_within(comparison)
