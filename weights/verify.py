"""Compares a converted folder with its original and writes certificate.json.

    python -m weights.verify vit
    python -m weights.verify vit --from ViT-L_16.npz            no network
    python -m weights.verify vit --images imagenet/val          also measures top-1

Every installed backend compares the activations of small models of the same format with
the original code, and the folder's logits with those of the original file and, if timm
has the model, with timm's. A difference above its limit gives the verdict FAILED, a
required comparison that was not possible INCOMPLETE; both end with an error. The card
shows the results as a table. Next: python -m weights.publish vit user/name
"""

import argparse
import dataclasses
import importlib.util
import json
import os
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
from .convert import read_record
from .labelled_images import list_images, shortfall
from .originals import first, link_original, original_file
from .processes import run_module
from .timm_reference import save_timm_logits

BACKENDS = ("jax", "tensorflow", "torch")
BATCH = 2


def verify(
    folder: str | Path,
    source: str | Path | None = None,
    photos: str | Path | None = None,
) -> str:
    """Compares a folder with its original; writes the certificate and the card.

    Args:
        folder: Folder that `weights.convert` wrote.
        source: Local file of the original to read instead of a download, or None.
        photos: Folder of labelled images, one folder per class, or None.

    Returns:
        The certificate's verdict: PASSED, FAILED or INCOMPLETE.

    Raises:
        ValueError: The original is not available, an argument is wrong, or the folder's
            certificate.json is missing or damaged.
    """
    folder = Path(os.path.expanduser(folder)).resolve()
    record = read_record(folder)
    entry = entry_of(record, folder)
    converted_from = read_certificate(folder).converted_from
    photos = Path(os.path.expanduser(photos)).resolve() if photos else None
    if photos:
        list_images(record, photos)  # raises errors before the slow comparisons
    shape = (BATCH, *record["kwargs"]["image_size"], 3)
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    backend = keras.backend.backend()
    original, file = original_file(entry, source)
    task = {
        "entry": dataclasses.asdict(entry),
        "original": {"path": str(original), "sha256": file.sha256},
        "folder": str(folder),
        "photos": {backend: str(photos)} if photos else {},
    }
    with tempfile.TemporaryDirectory() as work:
        certificate = Certificate(converted_from, file)
        np.save(Path(work, "images.npy"), images)
        Path(work, "task.json").write_text(json.dumps(task), "utf-8")
        linked = link_original(entry, original, Path(work, "original"))
        folders = {"original": linked, "folder": folder}
        save_timm_logits(certificate, entry, folders, record, images, Path(work))
        answers = [run_parity(name, work) for name in installed_backends()]
    for answer in answers:
        certificate.checks += [Check(**check) for check in answer["checks"]]
        if photos and "top1" in answer:
            _add_top1(certificate, entry, record, photos, *answer["top1"])
    write_certificate(folder, certificate)
    return certificate.verdict


def entry_of(record: dict, folder: Path) -> Entry:
    """Returns the entry of the file from which a folder was converted.

    Args:
        record: `ImageModel.record` in the folder.
        folder: Path of the folder, for the message.

    Raises:
        ValueError: The manifest has no such entry.
    """
    source = record["base"].get("source")
    for entry in map(first, manifest.entries()):
        if (entry.model, entry.source) == (record["variant"], source):
            return entry
    raise ValueError(
        f"The manifest has no {record['variant']} from {source!r}, the source of "
        f"{folder}. Convert it again."
    )


def installed_backends() -> list[str]:
    """Returns the Keras backends that are installed."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def run_parity(backend: str, work: str | Path) -> dict:
    """Runs `weights.parity` on a backend in a new process.

    Args:
        backend: Keras backend.
        work: Folder with the task.

    Returns:
        The content of answer.json.

    Raises:
        ValueError: The process fails; the message contains the end of its output.
    """
    log, answer = Path(work, "log.txt"), Path(work, "answer.json")
    with log.open("w", encoding="utf-8") as output:
        code = run_module("weights.parity", work, backend, output)
    if code or not answer.exists():
        said = log.read_text("utf-8", "replace").strip()
        raise ValueError(f"On {backend}: {said[-2000:]}")
    content = json.loads(answer.read_text("utf-8"))
    answer.unlink()
    return content


def _add_top1(
    certificate: Certificate,
    entry: Entry,
    record: dict,
    photos: Path,
    correct: int,
    count: int,
) -> None:
    """Adds top-1, and its check against the published value if no class is missing."""
    backend, images = keras.backend.backend(), f"{count} images of {photos.name}"
    certificate.notes.append(
        f"Top-1 on {images}, on {backend}: {100 * correct / count:.2f} %."
    )
    if not entry.top1:
        return
    percent = entry.top1["percent"]
    seen = {index for _, index in list_images(record, photos)}
    if len(seen) < record["kwargs"]["num_classes"]:
        certificate.notes.append(
            f"Not compared with the published {percent:.2f} %: it is of all classes."
        )
        return
    below, allowed = shortfall(percent, correct, count)
    name = f"top-1 on {images}, below {percent:.2f} %"
    versions = {"kerasvit": __version__}
    certificate.checks.append(Check(name, backend, below, 1.0, allowed, versions))


def main(arguments: list[str]) -> None:
    """Runs the command line."""
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
