"""What the current backend finds of a converted folder beside its original.

weights.verify runs it for each backend, in a process of its own:

    python -m weights.parity WORK

WORK holds task.json and images.npy, maybe timm-….npy; the answer is written beside
them, as answer.json.
"""

import dataclasses
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import numpy as np

import kerasvit
from kerasvit.checkpoints import Checkpoint
from kerasvit.hub.manifest import Entry

# The tests' own cases, not others like them: what the certificate says is then what
# every change of the package is tested with. Neither is installed. tests/test_house.py
# allows it here alone.
from tests.golden.family import recorded_values
from tests.golden.result import error
from tests.golden.runner import FAMILIES, check_case, read_manifest

from .certificate import ALLOWED, Check
from .in_timm import row_of
from .labelled import top1
from .originals import original

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def cases(entry: Entry) -> dict:
    """Those of tests/golden with an entry's architecture, in its format: {name: case}.

    Raises:
        ValueError: There is none.
    """
    builder = getattr(kerasvit, entry.model).builder.__name__
    found = {}
    for name, case in read_manifest(GOLDEN).items():
        if case["kind"] in FAMILIES:
            file = Checkpoint(GOLDEN / case["files"]["checkpoint"]).description
            if (file.code_base, file.builder) == (entry.format, builder):
                found[name] = case
    if not found:
        raise ValueError(
            f"tests/golden has no {builder} in the names of {entry.format}: add a case."
        )
    return found


def golden(entry: Entry) -> Check:
    """Small models in the entry's format against every activation of their original.

    Each was run through the original's own code; its weights take the way that those
    of the entry take. What is reported is the worst of all.
    """
    found = []
    for name, case in cases(entry).items():
        ((_, result),) = check_case(GOLDEN, name, case)
        quantity = max(result.errors, key=result.errors.get)
        recorded = recorded_values(GOLDEN / case["files"]["expected"])[quantity]
        scale = np.abs(recorded).max()
        found.append((result.errors[quantity], scale, result.tolerance))
    # The largest beside what is allowed for its model.
    worst = max(found, key=lambda errors: errors[0] / errors[2])
    name = f"{len(found)} small models by the original code, each activation"
    return _check(name, *worst)


def logits(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """What a model answers, or its features where it has no head."""
    return np.asarray(model.predict(images, verbose=0), "float64")


def compared(name: str, found: np.ndarray, expected: np.ndarray) -> Check:
    """Logits beside those of the original."""
    return _check(name, error(found, expected), np.abs(expected).max(), ALLOWED)


def read_here(entry: Entry) -> str:
    """Name of the comparison with the original's file, which says who read that."""
    if entry.filename.endswith(".npz"):
        return "logits, the original's .npz as kerasvit reads it, not its authors' code"
    return "logits, the original's file loaded here"


def _check(name: str, relative: float, scale: float, allowed: float) -> Check:
    backend = keras.backend.backend()
    versions = {
        "kerasvit": kerasvit.__version__,
        "keras": keras.__version__,
        backend: version(backend),
    }
    return Check(name, backend, relative, float(scale), float(allowed), versions)


def main(work: str | Path) -> None:
    """Does the task of a folder."""
    work = Path(work)
    task = json.loads((work / "task.json").read_text())
    entry, images = Entry(**task["entry"]), np.load(work / "images.npy")
    checks = [golden(entry)]
    path, sha256 = Path(task["original"]["path"]), task["original"]["sha256"]
    expected = logits(original(entry, path, sha256), images)
    keras.utils.clear_session()
    model = kerasvit.from_pretrained(task["folder"])
    found = logits(model, images)
    checks.append(compared(read_here(entry), found, expected))
    for file in sorted(work.glob("timm-*.npy")):
        name = row_of(file.stem.removeprefix("timm-"))
        checks.append(compared(name, found, np.load(file)))
    answer: dict[str, Any] = {"checks": [dataclasses.asdict(check) for check in checks]}
    if photos := task["photos"].get(keras.backend.backend()):
        answer["top1"] = top1(model, photos)
    (work / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
