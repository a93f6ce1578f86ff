"""Checks of one name of the catalogue with its real file.

`weights.first_contact` runs this module once per name, in a separate process:

    python -m weights.contact.checks WORK

WORK is a folder with task.json. The result is written to answer.json in it.
"""

import dataclasses
import importlib.util
import json
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import numpy as np

import kerasvit
from kerasvit import Preprocessing
from kerasvit.checkpoints import read_json
from kerasvit.hub.download import fetch
from kerasvit.hub.manifest import Entry
from kerasvit.loading.find import ZeroedHead
from kerasvit.prediction import imagenet_names

from .. import timm_reference
from ..certificate import ALLOWED
from ..disputed import disputed, measure
from ..names import name_of
from ..processes import end_with_parent
from ..servers import is_local, server_of
from .accuracy import accuracy
from .failures import ContactError, failure_of, failures
from .pictures import BUNDLED
from .published_logits import PUBLISHED
from .results import differing

NO_TIMM = "not compared: timm is not installed"
UNUSABLE_TIMM = "not compared: timm cannot be imported"
NO_PICTURE = "not compared: the photograph is not available"
LOCAL = "not compared: the file is not the public one, but of a local server"
CATS = slice(281, 286)  # ImageNet's classes of domestic cats
NOT_OF_TIMM = "it is not a file of timm, with timm's config.json"


def check(task: dict) -> dict[str, Any]:
    """Returns the fields of `results.Result` that need the model.

    Args:
        task: {"entry": fields of `Entry`, "pictures": {name: path}, "images": path of
            labelled images or None, "real": path of the ReaL labels or None, "out":
            folder of the results}.
    """
    entry = Entry(**task["entry"])
    answer: dict[str, Any] = {"failure": None, "loaded": False, "comparisons": []}
    answer |= {"photographs": {}, "top1": None}
    try:
        model = load(entry)
        answer["loaded"] = True
        images = preprocessed(model, [task["pictures"][name] for name in BUNDLED])
        found = outputs(model, images)
        answer["comparisons"] += compare_published(entry, model, task["pictures"])
        if is_of_imagenet(entry):
            answer["photographs"] = classify(model, task["pictures"])
        record = model.record
        del model
        keras.utils.clear_session()  # memory for timm's model
        comparison, problem = compare_timm(entry, record, images, found)
        answer["comparisons"].append(comparison)
        if is_of_imagenet(entry) and task["images"]:
            model = load(entry)
            answer["top1"] = accuracy(model, entry, task["images"], task["real"])
            if (name := name_of(entry)) in disputed():
                measure(name, model, entry.sha256, task["images"], task["out"])
        check_numbers(answer, problem, is_local(server_of(entry)))
    except failures() as error:
        answer["failure"] = failure_of(error)
    return answer


def is_of_imagenet(entry: Entry) -> bool:
    """Returns whether the weights have a head of the 1,000 ImageNet classes."""
    return entry.classes == len(imagenet_names()) and entry.head is None


def load(entry: Entry) -> keras.Model:
    """Returns the model of an entry, after comparing its head with the catalogue's.

    Raises:
        CheckpointError: The file cannot be read, or its tensors do not fit.
        ContactError: The head differs from the catalogue.
    """
    variant, name = getattr(kerasvit, entry.model), name_of(entry)
    if entry.head == "zeroed":
        try:
            variant(dataclasses.replace(entry, head=None))
        except ZeroedHead:
            return variant(entry, num_classes=0)
        raise ContactError(
            "numbers",
            f'{name}: the catalogue states head = "zeroed", and the head is not zero: '
            "remove that line in weights/sources.toml.",
        )
    try:
        model = variant(entry)
    except ZeroedHead as error:
        raise ContactError(
            "numbers",
            f'{name}: the head contains only zeros: add head = "zeroed" in '
            "weights/sources.toml.",
        ) from error
    if (found := model.record["kwargs"]["num_classes"]) != entry.classes:
        raise ContactError(
            "format",
            f"{name}: the file has {found} classes, the catalogue {entry.classes}.",
        )
    return model


def preprocessed(model: keras.Model, paths: list[str]) -> np.ndarray:
    """Returns photographs as the model takes them, shape (photographs, H, W, 3)."""
    transform = model.preprocessing
    return np.stack([transform(path) for path in paths])


def outputs(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Returns logits or features in float64.

    Raises:
        ContactError: They are not finite.
    """
    found = np.asarray(model.predict(images, verbose=0), "float64")
    if not np.isfinite(found).all():
        raise ContactError("numbers", "The model's outputs are not finite.")
    return found


def classify(
    model: keras.Model, pictures: dict[str, str]
) -> dict[str, list[tuple[str, float]]]:
    """Returns {photograph: five pairs (class name, probability)}."""
    found = kerasvit.classify(model, [pictures[name] for name in BUNDLED])
    return dict(zip(BUNDLED, found, strict=True))


def compare_published(
    entry: Entry, model: keras.Model, pictures: dict[str, str]
) -> list[dict]:
    """Compares a model's outputs with published ones; [] if there are none."""
    published = PUBLISHED.get(name_of(entry))
    if published is None:
        return []
    reference, allowed = published.reference, published.allowed
    if is_local(server_of(entry)):
        return [_comparison(reference, None, allowed, LOCAL)]
    if published.picture not in pictures:
        return [_comparison(reference, None, allowed, NO_PICTURE)]
    transform = Preprocessing(**published.preprocessing)
    image = transform(pictures[published.picture])[None]
    error = published.error_of(outputs(model, image)[0])
    return [_comparison(reference, error, allowed)]


def timm_is_installed() -> bool:
    """Returns whether timm can be found; it is not imported."""
    return importlib.util.find_spec("timm") is not None


def compare_timm(
    entry: Entry, record: dict, images: np.ndarray, found: np.ndarray
) -> tuple[dict, str | None]:
    """Compares outputs with those of timm for the same file.

    Args:
        entry: Entry of the file.
        record: `ImageModel.record` of its model.
        images: Array (B, height, width, 3).
        found: Outputs of the model for the images.

    Returns:
        (comparison, message of timm's error or None).
    """
    if not timm_is_installed():
        return _comparison("timm", None, ALLOWED, NO_TIMM), None
    reference = f"timm {version('timm')}"
    source, why = _source_for_timm(entry, record)
    if why:
        return _comparison(reference, None, ALLOWED, f"not compared: {why}"), None
    if not timm_reference.timm_can_be_imported():
        return _comparison(reference, None, ALLOWED, UNUSABLE_TIMM), None
    try:
        expected = timm_reference.timm_logits(source, images, record)
    except MemoryError:
        raise
    except Exception as error:  # any failure of timm is a failed comparison
        message = f"{reference} fails: {type(error).__name__} {error}"
        return _comparison(reference, math.nan, ALLOWED), message
    if expected.shape != found.shape:
        message = f"{reference} returns shape {expected.shape} instead of {found.shape}"
        return _comparison(reference, math.nan, ALLOWED), message
    relative, allowed = np.abs(found - expected).max() / np.abs(expected).max(), ALLOWED
    if relative > ALLOWED:
        allowed = timm_reference.allowed_error(expected, source, images, record)
    return _comparison(reference, float(relative), allowed), None


def _source_for_timm(entry: Entry, record: dict) -> tuple[Path, str | None]:
    """Returns the folder or file that timm reads, and why it reads none, or None."""
    file = fetch(entry)
    if not entry.on_hub:
        return file, timm_reference.why_not_npz(file, record)
    folder = file if file.is_dir() else file.parent
    if "architecture" in read_json(folder / "config.json"):
        return folder, None
    return folder, NOT_OF_TIMM


def check_numbers(answer: dict[str, Any], problem: str | None, random: bool) -> None:
    """Checks comparisons, the photograph of a cat, and the accuracy.

    Args:
        answer: Answer of `check`.
        problem: Message of timm's error, or None.
        random: Whether the weights are random, so that they see no cat.

    Raises:
        ContactError: One of them is beyond its limit.
    """
    problems = [problem] if problem else []
    problems += [
        f"The difference from {each['reference']} is {each['error']:.1e}, at most "
        f"{each['allowed']:.0e} is expected."
        for each in differing(answer["comparisons"])
        if not (problem and math.isnan(each["error"]))
    ]
    seen = {label for label, _ in answer["photographs"].get("chelsea", ())}
    if seen and not random and not seen.intersection(imagenet_names()[CATS]):
        problems.append("None of the five classes of the photograph chelsea is a cat.")
    if (top1 := answer["top1"]) and not top1["passed"]:
        problems.append(
            f"Top-1 is {top1['percent']:.2f} % on {top1['images']} images; "
            f"{top1['published']:.2f} % are published."
        )
    if problems:
        raise ContactError("numbers", " ".join(problems))


def _comparison(
    reference: str, error: float | None, allowed: float, note: str | None = None
) -> dict:
    return {"reference": reference, "error": error, "allowed": allowed, "note": note}


def main(work: str | Path) -> None:
    """Runs the task of a folder and writes answer.json."""
    work = Path(work)
    answer = check(json.loads((work / "task.json").read_text("utf-8")))
    (work / "answer.json").write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1])
