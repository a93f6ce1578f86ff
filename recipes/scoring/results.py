"""Numbers of a model on a set, stored so that they are not computed again."""

import dataclasses
import hashlib
import importlib.metadata
import json
import re
from pathlib import Path

import keras
import numpy as np
from progress import replace_file, write_json

from kerasvit import evaluation
from kerasvit.version import __version__

METRICS = ("top1", "top5", "nll", "ece")
PACKAGES = ("keras", "numpy", "tensorflow-datasets")
PROTOCOL = 1  # changed with the meaning of the numbers: others are computed again
ROUNDING = 1e-3  # by which the sums of probabilities may differ from 1


@dataclasses.dataclass(frozen=True)
class Result:
    """Numbers of a model on a set.

    Attributes:
        model, set: Names.
        weights: SHA-256 of the weights.
        images: Number of images that count.
        left_out: Number of images without a label, or of no class of the model.
        unmatched: Names of classes that the model does not have.
        classes: Number of classes of the model.
        scores: {metric of `METRICS`: (value, low, high)}, of all classes of the model.
        restricted: The same of the classes that occur in the set; None: all occur.
        restricted_classes: Their number.
        seconds: Time of the outputs, with reading.
        settings: What decides about the numbers, besides the weights.
        versions: Versions of the software.
        right: {"all" or "restricted": whether each image is right}, for differences.
    """

    model: str
    set: str
    weights: str
    images: int
    left_out: int
    unmatched: list[str]
    classes: int
    scores: dict
    restricted: dict | None
    restricted_classes: int | None
    seconds: float
    settings: dict
    versions: dict
    right: dict[str, np.ndarray]

    def parts(self):
        """Yields (scores, number of classes), of all and of the restricted classes."""
        yield self.scores, self.classes
        if self.restricted:
            yield self.restricted, self.restricted_classes

    def to_json(self) -> dict:
        """Returns everything but `right`."""
        fields = dataclasses.fields(self)
        return {x.name: getattr(self, x.name) for x in fields if x.name != "right"}


def score(candidate, image_set, match, outputs: np.ndarray, seconds: float) -> Result:
    """Returns the numbers of a model on a set.

    Args:
        candidate: `candidates.Candidate`.
        image_set: `sets.ImageSet`.
        match: Result of `labels.match`.
        outputs: Logits or probabilities (count, classes).
        seconds: Time of the outputs.

    Raises:
        ValueError: An output is not finite, or no image has a class of the model.
    """
    used = np.array([len(each) > 0 for each in match.labels])
    if not used.any():
        raise ValueError(
            f"`on`: no image of {image_set.name} is of a class of {candidate.name}."
        )
    logits = _logits(outputs[used])
    labels = [each for each in match.labels if len(each)]
    scores = evaluation.scores(logits, labels)
    right = {"all": evaluation.top_k_hits(logits, labels)}
    restricted, classes = None, match.restricted
    if classes is not None:
        among = [np.searchsorted(classes, each) for each in labels]
        restricted = evaluation.scores(logits[:, classes], among)
        right["restricted"] = evaluation.top_k_hits(logits[:, classes], among)
    return Result(
        model=candidate.name,
        set=image_set.name,
        weights=candidate.weights,
        images=len(labels),
        left_out=int((~used).sum()),
        unmatched=match.unmatched,
        classes=candidate.classes,
        scores=scores,
        restricted=restricted,
        restricted_classes=None if classes is None else len(classes),
        seconds=seconds,
        settings=settings(candidate, image_set),
        versions={name: importlib.metadata.version(name) for name in PACKAGES}
        | {"kerasvit": __version__, "backend": keras.backend.backend()},
        right=right,
    )


def difference(one: Result, other: Result, restricted: bool):
    """Returns how much more accurate the second model is, with its interval.

    None if the results are not of the same images.
    """
    name = "restricted" if restricted else "all"
    if name not in one.right or name not in other.right:
        return None
    if one.settings["labels"] != other.settings["labels"] or one.images != other.images:
        return None
    return evaluation.paired_difference(one.right[name], other.right[name])


def _logits(outputs):
    """Returns logits; of probabilities, as of models of Keras, the logarithm."""
    sums = outputs.sum(axis=1)
    if (outputs >= 0).all() and np.allclose(sums, 1, atol=ROUNDING):
        return np.log(np.maximum(outputs, np.finfo("float32").tiny))
    return outputs


class Store:
    """Results of the pairs of a model and a set, in a folder.

    Args:
        folder: Path of the folder.
        here: Devices; the first process writes.

    Raises:
        ValueError: The folder cannot be written.
    """

    def __init__(self, folder: str, here):
        self.folder, self.here = Path(folder).expanduser(), here
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error

    def find(self, candidate, image_set) -> Result | None:
        """Returns the result of a model on a set, if it has been computed.

        Weights, images, transform and software decide whether it is the same.
        """
        path = self._path(candidate.name, image_set.name)
        numbers = path.with_suffix(".npz")
        if not path.is_file() or not numbers.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        same = {
            "weights": candidate.weights,
            "settings": settings(candidate, image_set),
        }
        if any(stored[name] != value for name, value in same.items()):
            return None
        with np.load(numbers) as arrays:
            return Result(**stored, right=dict(arrays))

    def add(self, result: Result) -> None:
        """Writes a result; an interrupted run finds it again."""
        if not self.here.is_first:
            return
        path = self._path(result.model, result.set)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.parent / ".unfinished.npz"
        np.savez_compressed(unfinished, **result.right)
        replace_file(unfinished, path.with_suffix(".npz"))
        write_json(path, result.to_json())

    def _path(self, model, name):
        """Returns the file of a result; names may have characters that paths do not."""
        model, name = (re.sub(r"[^\w.-]+", "_", each) for each in (model, name))
        return self.folder / model / f"{name}.json"


def settings(candidate, image_set) -> dict:
    """Returns what decides about the numbers, besides the weights."""
    labels = np.concatenate(image_set.labels) if image_set.labels else np.zeros(0)
    digest = hashlib.sha256(labels.astype("int64").tobytes())
    digest.update("\n".join(image_set.label_names).encode())
    return {
        "protocol": PROTOCOL,
        "images": len(image_set.labels),
        "labels": digest.hexdigest(),
        "label_names": candidate.label_names,
        "transform": candidate.transform.to_config(),
        "dtype": candidate.model.dtype_policy.name,
    }
