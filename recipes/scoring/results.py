"""Numbers of a model on a set, stored so that they are not computed again."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from command.paths import file_name
from training.run_folder import replace_file, write_json

from kerasvit import __version__, evaluation

from .candidates import Candidate
from .outputs import Predictor

METRICS = ("top1", "top5", "nll", "ece")
LABEL_METRICS = ("map", "f1_micro", "f1_macro", "f1_samples")  # of several labels
PACKAGES = ("keras", "numpy", "tensorflow-datasets")
PROTOCOL = 3  # changed with the meaning of the numbers: others are computed again


class Part(NamedTuple):
    """Numbers of a model on a set for some of its classes, or by one of several ways.

    Attributes:
        classes: Number of classes among which the model chooses.
        scores: {metric of `METRICS`: `evaluation.Estimate`}; other numbers of the
            papers have names of their own.
    """

    classes: int
    scores: dict[str, evaluation.Estimate]


@dataclasses.dataclass(frozen=True)
class Result:
    """Numbers of a model on a set.

    Attributes:
        model, set: Names.
        measure: What was measured; "" for the outputs of the model.
        weights: SHA-256 of the weights.
        images: Number of images that count.
        left_out: Number of images without a label, or of no class of the model.
        unmatched: Names of classes that the model does not have.
        parts: {name: `Part`}. Those of the outputs are "all" classes of the model and,
            if not all occur, "restricted" to those that occur in the set.
        seconds: Time of the measurement, with reading.
        settings: What decides about the numbers, besides the weights.
        versions: Versions of the software.
        right: {name of a part: whether each image is right}, for differences; also
            `confusion.CLASSES`: the class of each image, and the predicted one.
        calibration: Fields of the `kerasvit.Calibration` of `--trust`; else None.
    """

    model: str
    set: str
    measure: str
    weights: str
    images: int
    left_out: int
    unmatched: list[str]
    parts: dict[str, Part]
    seconds: float
    settings: dict
    versions: dict
    right: dict[str, np.ndarray]
    calibration: dict | None = None

    def to_json(self) -> dict:
        """Returns everything but `right`."""
        fields = {field.name: getattr(self, field.name) for field in FIELDS}
        return fields | {"parts": {k: v._asdict() for k, v in self.parts.items()}}

    @classmethod
    def from_json(cls, stored: dict, right: dict) -> "Result":
        """Returns the result of which `to_json` returned the rest."""
        parts = {
            name: Part(
                part["classes"],
                {k: evaluation.Estimate(*v) for k, v in part["scores"].items()},
            )
            for name, part in stored["parts"].items()
        }
        return cls(**stored | {"parts": parts, "right": right})


FIELDS = [each for each in dataclasses.fields(Result) if each.name != "right"]


@dataclasses.dataclass(frozen=True)
class Task:
    """A measurement to make, unless its result is stored.

    Attributes:
        candidate: `candidates.Candidate`.
        set, measure, settings: As in the `Result`.
        compute: Function of a `Predictor` that returns {name: `Part`} and the other
            fields of `Result` that `result` does not fill.
    """

    candidate: Candidate
    set: str
    measure: str
    settings: dict
    compute: Callable[[Predictor], dict]

    def result(self, predict: Predictor) -> Result:
        """Measures.

        Raises:
            command_line.BadInput: The outputs cannot be scored, such as NaN.
        """
        start = time.perf_counter()
        measured = {"left_out": 0, "unmatched": [], **self.compute(predict)}
        return Result(
            model=self.candidate.name,
            set=self.set,
            measure=self.measure,
            weights=self.candidate.weights,
            seconds=time.perf_counter() - start,
            settings=self.settings,
            versions={name: importlib.metadata.version(name) for name in PACKAGES}
            | {"kerasvit": __version__, "backend": keras.backend.backend()},
            **measured,
        )


def fields(measured: dict[str, tuple[Part, np.ndarray]]) -> dict:
    """Returns what `Task.compute` does for {name: (`Part`, hits of the images)}."""
    return {
        "images": next(hits.shape[-1] for _, hits in measured.values()),
        "parts": {name: part for name, (part, _) in measured.items()},
        "right": {name: hits for name, (_, hits) in measured.items()},
    }


def difference(one: Result, other: Result, part: str) -> evaluation.Estimate | None:
    """Returns how much more accurate the second model is, with its interval.

    None if the results are not of the same images.
    """
    if part not in one.right or part not in other.right:
        return None
    if one.settings["labels"] != other.settings["labels"] or one.images != other.images:
        return None
    found = evaluation.paired_difference(one.right[part], other.right[part])
    return evaluation.Estimate(*found)


class Store:
    """Results of the pairs of a model and a set, in a folder.

    Raises:
        ValueError: The folder cannot be written.
    """

    def __init__(self, folder: str, devices):
        self.folder, self.devices = Path(os.path.expanduser(folder)), devices
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error

    def find(self, task: Task) -> Result | None:
        """Returns the result of a task, if it has been computed.

        Weights and settings, with images and transform, decide whether it is the same.
        A damaged file counts as none.
        """
        path = self._path(task.candidate.name, task.set, task.measure)
        numbers = path.with_suffix(".npz")
        if not path.is_file() or not numbers.is_file():
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            with np.load(numbers) as arrays:
                right = dict(arrays)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):  # damaged
            return None
        if (
            not isinstance(stored, dict)
            or stored.get("weights") != task.candidate.weights
        ):
            return None
        if stored["settings"] != json.loads(json.dumps(task.settings)):
            return None
        return Result.from_json(stored, right)

    def add(self, result: Result) -> None:
        """Writes a result; an interrupted run finds it again."""
        if not self.devices.is_first:
            return
        path = self._path(result.model, result.set, result.measure)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.parent / ".unfinished.npz"
        np.savez_compressed(unfinished, **result.right)
        replace_file(unfinished, path.with_suffix(".npz"))
        write_json(path, result.to_json())

    def _path(self, model, name, measure):
        """Returns the file of a result."""
        name = f"{name} {measure}".strip()
        return self.folder_of(model) / f"{file_name(name)}.json"

    def folder_of(self, model: str) -> Path:
        """Returns the folder of the results of a model."""
        return self.folder / file_name(model)


def settings(candidate, image_set) -> dict:
    """Returns what decides about the numbers, besides the weights."""
    labels = np.concatenate(image_set.labels) if image_set.labels else np.zeros(0)
    digest = hashlib.sha256(labels.astype("int64").tobytes())
    digest.update("\n".join(image_set.label_names).encode())
    found = {}
    if image_set.several:
        digest.update(np.array([len(each) for each in image_set.labels]).tobytes())
        own = candidate.calibration
        found["calibration"] = own and dataclasses.asdict(own)
    return {
        **found,
        "protocol": PROTOCOL,
        "images": len(image_set.labels),
        "labels": digest.hexdigest(),
        "pixels": image_set.digest,
        "label_names": candidate.label_names,
        **candidate.how(),
        "dtype": candidate.model.dtype_policy.name,
    }
