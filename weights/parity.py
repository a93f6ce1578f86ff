"""Compares a converted folder with its original on the current backend.

`weights.verify` runs this module once per backend, in a separate process:

    python -m weights.parity WORK

WORK is a folder with task.json, images.npy and, if timm has the model, timm-….npz. The
result is written to answer.json in it.
"""

import dataclasses
import functools
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

# The certificate uses the golden cases of the tests, which are run for every change of
# the package. Neither folder is installed; tests/test_house.py allows this import.
from tests.golden.family import recorded_values
from tests.golden.result import error
from tests.golden.runner import FAMILIES, check_case, read_manifest

from .certificate import ALLOWED, Check
from .labelled_images import top1
from .originals import original
from .processes import end_with_parent
from .timm_reference import check_name

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def golden_cases(entry: Entry) -> dict:
    """Returns the cases of tests/golden with the architecture and format of an entry.

    Returns:
        {name: case}.

    Raises:
        ValueError: There is no such case.
    """
    builder = getattr(kerasvit, entry.model).builder.__name__
    found = cases_of(entry.format, builder)
    if not found:
        raise ValueError(
            f"tests/golden has no {builder} in the format {entry.format}: add a case."
        )
    return found


def cases_of(code_base: str, builder: str) -> dict:
    """Returns {name: case} of the cases with a format and the name of a builder."""
    return {
        name: case
        for (name, case), description in _descriptions()
        if (description.code_base, description.builder) == (code_base, builder)
    }


@functools.cache
def _descriptions() -> list:
    """Returns [((name, case), description of its checkpoint)] of all models."""
    return [
        (item, Checkpoint(GOLDEN / item[1]["files"]["checkpoint"]).description)
        for item in read_manifest(GOLDEN).items()
        if item[1]["kind"] in FAMILIES
    ]


def check_golden_cases(entry: Entry) -> Check:
    """Compares every activation of small models with those of the original code.

    The small models have the format of the entry, so that their weights are loaded by
    the same code. The check reports the largest error relative to its limit.
    """
    errors = []
    for name, case in golden_cases(entry).items():
        ((_, result),) = check_case(GOLDEN, name, case)
        quantity = max(result.errors, key=result.errors.get)
        recorded = recorded_values(GOLDEN / case["files"]["expected"])[quantity]
        scale = np.abs(recorded).max()
        errors.append((result.errors[quantity], scale, result.tolerance))
    worst = max(errors, key=lambda each: each[0] / each[2])
    name = f"{len(errors)} small models by the original code, each activation"
    return _make_check(name, *worst)


def logits(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Returns a model's logits, or its features if it has no head, in float64."""
    return np.asarray(model.predict(images, verbose=0), "float64")


def compare_logits(
    name: str, found: np.ndarray, expected: np.ndarray, allowed: float = ALLOWED
) -> Check:
    """Returns the check of logits against those of the original."""
    return _make_check(name, error(found, expected), np.abs(expected).max(), allowed)


def loaded_check_name(entry: Entry) -> str:
    """Returns the name of the check against the original file loaded by kerasvit."""
    if entry.filename.endswith(".npz"):
        return "logits, the original's .npz as kerasvit reads it, not its authors' code"
    return "logits, the original's file loaded here"


def _make_check(name: str, relative: float, scale: float, allowed: float) -> Check:
    backend = keras.backend.backend()
    versions = {
        "kerasvit": kerasvit.__version__,
        "keras": keras.__version__,
        backend: version(backend),
    }
    return Check(name, backend, relative, float(scale), float(allowed), versions)


def main(work: str | Path) -> None:
    """Runs the task of a folder and writes answer.json."""
    work = Path(work)
    task = json.loads((work / "task.json").read_text("utf-8"))
    entry, images = Entry(**task["entry"]), np.load(work / "images.npy")
    checks = [check_golden_cases(entry)]
    path, sha256 = Path(task["original"]["path"]), task["original"]["sha256"]
    expected = logits(original(entry, path, sha256), images)
    keras.utils.clear_session()
    model = kerasvit.from_pretrained(task["folder"])
    found = logits(model, images)
    checks.append(compare_logits(loaded_check_name(entry), found, expected))
    for file in sorted(work.glob("timm-*.npz")):
        name = check_name(file.stem.removeprefix("timm-"))
        with np.load(file) as timm:
            checks.append(compare_logits(name, found, timm["logits"], timm["allowed"]))
    answer: dict[str, Any] = {"checks": [dataclasses.asdict(check) for check in checks]}
    if photos := task["photos"].get(keras.backend.backend()):
        answer["top1"] = top1(model, photos)
    (work / "answer.json").write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1])
