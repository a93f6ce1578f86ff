"""Checks every name of the catalogue with the file at its real server.

    python -m weights.first_contact                      all names; see --budget
    python -m weights.first_contact --only 'ViT*/sam' 'MixerB16'
    python -m weights.first_contact --budget 200GB       what fits into 200 GB
    python -m weights.first_contact --images imagenet/val --real real.json

For each name the command asks the server for the file, its size, its commit and the
licence on its card; pins the file in the package's manifest; downloads it; builds the
model in a separate process; compares its outputs with timm's and with published ones;
and classifies two photographs. With --images it also measures top-1; if the published
number is disputed, with every preprocessing of disputed.toml.

The results are in OUT/results, one file per name, and OUT/table.md. Run the command
again to continue an interrupted run, or to repeat the names that failed. If the disk is
full, files that the command downloaded are deleted. At the end it writes STATUS.md. The
exit code is 1 if a name fails.
"""

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras

from kerasvit.hub.download import fetch
from kerasvit.hub.manifest import MANIFEST, Entry

from . import lock, status
from .contact import checks, pictures, table
from .contact import results as contact_results
from .contact.failures import ContactError, explain, failure_of, failures
from .contact.published_logits import COCO, PUBLISHED
from .contact.results import Result
from .contact.run import LOGS, Run, fields_of, is_current, prepare
from .contact.server import check_licence, find_pins, look_up, server_of
from .names import name_of, read_entries
from .processes import run_module
from .timm_reference import INSTALL


def first_contact(run: Run) -> bool:
    """Checks the names of a run, prints the table, and returns whether all passed.

    Raises:
        OSError: A result, or the manifest, cannot be written.
    """
    megabytes = sum(entry.megabytes for entry in run.reached)
    print(f"{len(run.reached)} names, {megabytes / 1e3:.1f} GB", flush=True)
    if not checks.timm_is_installed():
        print(f"timm is not installed: {INSTALL}", file=sys.stderr)
    published = [PUBLISHED.get(name_of(entry)) for entry in run.reached]
    with_coco = any(each and each.picture == COCO for each in published)
    run.pictures = pictures.pictures(run.out, with_coco)
    results = []
    for i, entry in enumerate(run.reached, 1):
        result = contact_results.read(run.out, name_of(entry))
        if result is None or not is_current(result, entry, run):
            result = examine(entry, run)
            contact_results.write(run.out, result)
            _report(result, f"{i}/{len(run.reached)}")
        results.append(result)
    beyond = [name_of(entry) for entry in run.beyond]
    path = table.write(run.out, results, beyond)
    print(f"\n{table.text(results)}\n")
    for line in table.problems(results):
        print(line)
    if beyond:
        print(f"Not reached with this budget: {', '.join(beyond)}")
    print(f"{table.summary(results, beyond)} {path}")
    if run.manifest == MANIFEST:
        for sentence in status.update(run.out):
            print(f"Not used for {status.PAGE}: {sentence}.")
        print(f"Commit {status.PAGE}, {status.FACTS.name} and {MANIFEST.name}.")
    return all(result.passed for result in results)


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
        fetch(pinned)
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
    with tempfile.TemporaryDirectory() as work, log.open("w") as output:
        Path(work, "task.json").write_text(json.dumps(task))
        backend = keras.backend.backend()
        code = run_module("weights.contact.checks", work, backend, output)
        answer = Path(work, "answer.json")
        if code == 0 and answer.exists():
            return json.loads(answer.read_text())
    return {"failure": failure_of(_crash(code, log))}


def _report(result: Result, position: str) -> None:
    words = f"FAILED: {result.failure['kind']}" if result.failure else "passed"
    seconds = f"{result.seconds:.0f} s"
    print(f"[{position}] {result.name}: {words}, {seconds}", flush=True)


def _crash(code: int, log: Path) -> ContactError:
    if code == -getattr(signal, "SIGKILL", 9):
        return ContactError(
            "space", "The system ended the process: it needs more memory than there is."
        )
    return ContactError("format", f"The process ended with code {code}; log: {log}.")


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.first_contact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="such as 'ViT*/sam'"
    )
    parser.add_argument("--out", default="contact", help="folder of the results")
    parser.add_argument("--budget", help="limit of the downloads, such as 200GB")
    parser.add_argument("--images", help="ImageNet's validation images, for top-1")
    parser.add_argument("--real", help="real.json, the ReaL labels of these images")
    parser.add_argument(
        "--manifest",
        type=Path,
        default=MANIFEST,
        help="manifest to read and to pin files in (default: the package's)",
    )
    options = parser.parse_args(arguments)
    try:
        run = prepare(**vars(options))
    except ValueError as error:
        sys.exit(f"Error: {error}")
    try:
        passed = first_contact(run)
    except OSError as error:  # of the results and the manifest; others are recorded
        sys.exit(f"Error: {error}")
    if not passed:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
