"""Compares a converted folder with its original, and writes certificate.json.

    python -m weights.verify vit
    python -m weights.verify vit --from ViT-L_16.npz            no network
    python -m weights.verify vit --images imagenet/val          top-1 besides

On every installed backend: small models of its format beside every activation of the
original's code; the folder's logits beside those of the original's file; and beside
timm's, where it has the model. A difference beyond what is allowed gives the verdict
FAILED, a comparison that should have been made and was not INCOMPLETE; both end with an
error. The card has the same as a table. Next: python -m weights.publish vit user/name
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry
from kerasvit.version import __version__

from .certificate import (
    FAILED,
    INCOMPLETE,
    Certificate,
    Check,
    read_certificate,
    write_certificate,
)
from .convert import record_of
from .in_timm import ask_timm
from .labelled import listed, shortfall
from .originals import first, link_original, original_file

BACKENDS = ("jax", "tensorflow", "torch")
BATCH = 2


def verify(
    folder: str | Path,
    source: str | Path | None = None,
    photos: str | Path | None = None,
) -> str:
    """Writes the certificate of a folder, and the card's section of it.

    Args:
        folder: That `weights.convert` wrote.
        source: Local file of the original in place of the download, or None.
        photos: Folder of class folders of images, or None.

    Returns:
        The certificate's verdict: PASSED, FAILED or INCOMPLETE.

    Raises:
        ValueError: The original cannot be had, or an argument is wrong, or the folder's
            certificate.json is missing or damaged.
    """
    folder = Path(folder).expanduser().resolve()
    record = record_of(folder)
    entry = entry_of(record, folder)
    converted_from = read_certificate(folder).converted_from
    photos = Path(photos).expanduser().resolve() if photos else None
    if photos:
        listed(record, photos)  # before any time is spent
    shape = (BATCH, *record["kwargs"]["image_size"], 3)
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    here = keras.backend.backend()
    original, file = original_file(entry, source)
    task = {
        "entry": dataclasses.asdict(entry),
        "original": {"path": str(original), "sha256": file.sha256},
        "folder": str(folder),
        "photos": {here: str(photos)} if photos else {},
    }
    with tempfile.TemporaryDirectory() as work:
        report = Certificate(converted_from, file)
        np.save(Path(work, "images.npy"), images)
        Path(work, "task.json").write_text(json.dumps(task))
        linked = link_original(entry, original, Path(work, "original"))
        folders = {"original": linked, "folder": folder}
        ask_timm(report, entry, folders, images, Path(work))
        answers = [on_backend(name, work) for name in installed()]
    for answer in answers:
        report.checks += [Check(**check) for check in answer["checks"]]
        if photos and "top1" in answer:
            _report_top1(report, entry, record, photos, *answer["top1"])
    write_certificate(folder, report)
    return report.verdict


def entry_of(record: dict, folder: Path) -> Entry:
    """The entry of the file that a folder was converted from.

    Raises:
        ValueError: There is none.
    """
    source = record["base"].get("source")
    for entry in map(first, manifest.entries()):
        if (entry.model, entry.source) == (record["variant"], source):
            return entry
    raise ValueError(
        f"The manifest has no {record['variant']} from {source!r}, of which {folder} "
        "was made. Convert it anew."
    )


def installed() -> list[str]:
    """The backends of Keras that are installed."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def on_backend(backend: str, work: str | Path) -> dict:
    """What `weights.parity` answers, in a process of its own.

    Raises:
        ValueError: It fails; with the end of what it says.
    """
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(
        [sys.executable, "-m", "weights.parity", str(work)],
        env={**quiet, **os.environ, "KERAS_BACKEND": backend},
        cwd=Path(__file__).parents[1],
        stderr=subprocess.PIPE,
        text=True,
    )
    answer = Path(work, "answer.json")
    if result.returncode or not answer.exists():
        raise ValueError(f"On {backend}: {result.stderr.strip()[-2000:]}")
    result = json.loads(answer.read_text())
    answer.unlink()
    return result


def _report_top1(
    report: Certificate,
    entry: Entry,
    record: dict,
    photos: Path,
    right: int,
    count: int,
) -> None:
    """Adds top-1, and whether it is as published, where all classes have images."""
    backend, images = keras.backend.backend(), f"{count} images of {photos.name}"
    report.notes.append(
        f"Top-1 on {images}, on {backend}: {100 * right / count:.2f} %."
    )
    if not entry.top1:
        return
    percent = entry.top1["percent"]
    seen = {index for _, index in listed(record, photos)}
    if len(seen) < record["kwargs"]["num_classes"]:
        report.notes.append(
            f"Not compared with the published {percent:.2f} %: it is of all classes."
        )
        return
    below, allowed = shortfall(percent, right, count)
    name = f"top-1 on {images}, below {percent:.2f} %"
    versions = {"kerasvit": __version__}
    report.checks.append(Check(name, backend, below, 1.0, allowed, versions))


def main(arguments: list[str]) -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder")
    parser.add_argument("--from", dest="source", help="local file of the original")
    parser.add_argument("--images", help="folder of class folders, for top-1")
    options = parser.parse_args(arguments)
    try:
        verdict = verify(options.folder, options.source, options.images)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    card = Path(options.folder) / "README.md"
    if verdict == FAILED:
        sys.exit(f"FAILED: the table in {card} says where.")
    if verdict == INCOMPLETE:
        sys.exit(f"INCOMPLETE: not all could be compared; {card} says why.")
    print(f"PASSED: {card}")


if __name__ == "__main__":
    main(sys.argv[1:])
