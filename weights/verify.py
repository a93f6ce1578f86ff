"""Proves that a converted folder is its original, and writes that into its card.

    python -m weights.verify vit
    python -m weights.verify vit --from ViT-L_16.npz            no network
    python -m weights.verify vit --images imagenet/val          top-1 besides

On every installed backend: small models of its format beside every activation of the
original's code; the folder's logits beside those of the original's file; and beside
timm's, where it is installed and has the model. A difference beyond what is allowed is
written as FAILED and ends with an error. Next: python -m weights.publish vit user/name
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np

from kerasvit.checkpoints import read_json
from kerasvit.hub import manifest
from kerasvit.hub.download import fetch
from kerasvit.hub.manifest import Entry

from .certificate import Check, write_certificate
from .convert import offered, record_of
from .labelled import listed

BACKENDS = ("jax", "tensorflow", "torch")
BATCH = 2


def verify(folder, source=None, photos=None) -> bool:
    """Writes the certificate of a folder into its card.

    Args:
        folder: That `weights.convert` wrote.
        source: Local file of the original in place of the download, or None.
        photos: Folder of class folders of images, or None.

    Returns:
        Whether all comparisons passed.

    Raises:
        ValueError: The original cannot be had, or an argument is wrong.
    """
    folder = Path(folder).expanduser().resolve()
    record = record_of(folder)
    entry = entry_of(record, folder)
    if photos:
        listed(record, photos)  # before any time is spent
    shape = (BATCH, *record["kwargs"]["image_size"], 3)
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    here = keras.backend.backend()
    task = {
        "entry": dataclasses.asdict(entry),
        "folder": str(folder),
        "photos": {here: str(Path(photos).expanduser().resolve())} if photos else {},
    }
    with (
        offered(source or fetch(entry), entry) as place,
        tempfile.TemporaryDirectory() as work,
    ):
        np.save(Path(work, "images.npy"), images)
        Path(work, "task.json").write_text(json.dumps(task))
        notes = _ask_timm({"original": place, "folder": folder}, images, Path(work))
        answers = [on_backend(name, work) for name in installed()]
    checks = [Check(**check) for answer in answers for check in answer["checks"]]
    for right, count in (answer["top1"] for answer in answers if "top1" in answer):
        notes.append(
            f"Top-1 on {count} images of {Path(photos).name}, on {here}: "
            f"{100 * right / count:.2f} %."
        )
    return write_certificate(folder, checks, notes)


def entry_of(record, folder) -> Entry:
    """The entry of the manifest that a folder was converted from.

    Raises:
        ValueError: There is none.
    """
    source = record["base"].get("source")
    for entry in manifest.entries():
        if (entry.model, entry.source) == (record["variant"], source):
            return entry
    raise ValueError(
        f"The manifest has no {record['variant']} from {source!r}, of which {folder} "
        "was made. Convert it anew."
    )


def installed() -> list[str]:
    """The backends of Keras that are installed."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def on_backend(backend, work) -> dict:
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
    said = json.loads(answer.read_text())
    answer.unlink()
    return said


def timm_logits(folder, images) -> np.ndarray:
    """What timm answers with the weights of a folder."""
    import timm
    import torch

    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        return model(torch.from_numpy(channels_first)).numpy()


def _ask_timm(folders, images, work) -> list[str]:
    """Saves timm's logits for the backends to meet; says what it could not."""
    try:
        import timm
    except Exception as error:  # its neighbours' too, such as torchvision's
        return [f"Not run: timm cannot be imported here ({error})."]
    notes = [f"timm is {timm.__version__}, with torch {version('torch')}."]
    for name, folder in folders.items():
        if "architecture" not in read_json(Path(folder) / "config.json"):
            notes.append(f"Not run: the {name} in timm; its config.json is not timm's.")
            continue
        np.save(work / f"timm-{name}.npy", timm_logits(folder, images))
    return notes


def main(arguments):
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
        passed = verify(options.folder, options.source, options.images)
    except ValueError as error:
        sys.exit(f"Error: {error}")
    card = Path(options.folder) / "README.md"
    if not passed:
        sys.exit(f"FAILED: the table in {card} says where.")
    print(f"PASSED: {card}")


if __name__ == "__main__":
    main(sys.argv[1:])
