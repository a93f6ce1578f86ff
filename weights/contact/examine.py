"""Examination of one name: its server, its pins, its download and its checks."""

import dataclasses
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import keras

from kerasvit.hub.download import fetch
from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import Entry

from .. import lock
from ..names import name_of, read_entries
from ..processes import run_module
from ..servers import server_of
from .failures import ContactError, explain, failure_of, failures
from .results import Result
from .run import LOGS, Run, fields_of
from .server import check_licence, find_pins, look_up


def examine(entry: Entry, run: Run) -> Result:
    """Returns the result for a name; its pins are in the manifest then.

    Raises:
        OSError: The manifest or the log cannot be written.
    """
    start = time.monotonic()
    fields: dict[str, Any] = {
        "name": name_of(entry),
        "server": server_of(entry),
        "entry": fields_of(entry),
        "licence": {"catalogue": entry.license, "server": None},
        "backend": keras.backend.backend(),
    }
    pinned = None
    try:
        fields["pins"] = find(entry, run, fields["licence"])
        pinned = dataclasses.replace(entry, **fields["pins"])
        path = fetch(pinned)
        if not pinned.sha256:  # the Hub states none
            path = path / entry.filename if path.is_dir() else path
            fields["pins"] |= {"sha256": file_hash(path)}
            pinned = dataclasses.replace(pinned, **fields["pins"])
    except failures() as error:
        fields["failure"] = failure_of(error, explain(error, entry))
    if pinned and pinned != entry:
        save_pins(pinned, run)
    if pinned and "failure" not in fields:
        fields |= run_checks(pinned, run)
    seconds = round(time.monotonic() - start, 1)
    return Result(**fields, seconds=seconds)


def find(entry: Entry, run: Run, licence: dict[str, str | None]) -> dict[str, Any]:
    """Returns the pins of an entry, after making room on the disk for its file.

    Args:
        entry: Entry to find at its server.
        run: Its list of downloads is extended.
        licence: Field of the result; the licence on the card is added.

    Raises:
        ContactError, OSError: One of `failures`.
    """
    listing = look_up(entry)
    licence["server"] = listing.licence
    check_licence(entry, listing)
    commit = entry.revision or (listing.info.sha if listing.info else None)
    run.downloads.prepare(entry, commit, listing.size)
    return find_pins(entry, listing)


def save_pins(entry: Entry, run: Run) -> None:
    """Writes the pins of an entry into the manifest."""
    pins = {key: getattr(entry, key) for key in lock.PINS if getattr(entry, key)}
    tables = read_entries(run.manifest)  # another command may have written it
    for fields in tables:
        if (fields["model"], fields["tag"]) == (entry.model, entry.tag):
            fields |= pins
    lock.write(tables, run.manifest)


def run_checks(entry: Entry, run: Run) -> dict[str, Any]:
    """Returns the fields of a result that need the model."""
    log = run.out / LOGS / f"{name_of(entry).replace('/', '-')}.txt"
    task = {
        "entry": dataclasses.asdict(entry),
        "pictures": run.pictures,
        "images": run.images,
        "real": run.real,
        "out": str(run.out),
    }
    return run_process(task, log)


def run_process(task: dict[str, Any], log: Path) -> dict[str, Any]:
    """Returns the answer of `weights.contact.checks`, or the failure of its process.

    Args:
        task: Argument of `contact.checks.check`.
        log: File for the output of the process.
    """
    with (
        tempfile.TemporaryDirectory() as work,
        log.open("w", encoding="utf-8") as output,
    ):
        Path(work, "task.json").write_text(json.dumps(task), "utf-8")
        backend = keras.backend.backend()
        code = run_module("weights.contact.checks", work, backend, output)
        answer = Path(work, "answer.json")
        if code == 0 and answer.exists():
            return json.loads(answer.read_text("utf-8"))
    return {"failure": failure_of(_crash(code, log))}


def _crash(code: int, log: Path) -> ContactError:
    if code == -getattr(signal, "SIGKILL", 9):
        return ContactError(
            "space", "The system ended the process: it needs more memory than there is."
        )
    return ContactError("format", f"The process ended with code {code}; log: {log}.")
