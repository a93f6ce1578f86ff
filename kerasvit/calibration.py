"""Calibrates a classifier: temperatures, thresholds, conformal sets, unlike images.

kerasvit.calibrate(model, (images, labels))     # validation images
kerasvit.classify(model, "photo.jpg", coverage=0.9)
"""

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar, Literal

import keras
import ml_dtypes
import numpy as np

from kerasvit.evaluation import conformal, several_labels, temperatures
from kerasvit.evaluation.metrics import log_probabilities
from kerasvit.evaluation.out_of_distribution import (
    energy_score,
    joint_energy_score,
)

from .arguments import ArgumentError, integer, one_of
from .checkpoints import new_files, read_json
from .fine_tuning.heads import heads_of, inner_model
from .fine_tuning.labelled import class_indices, label_rows, read_again
from .hub.download import CONFIG
from .hub.writing import local_folder
from .records import SEVERAL_LABELS, found_record

log = logging.getLogger("kerasvit")

KEPT = 1_000  # scores of images, at most, that a record has
# Of log T about 0. The likelihood of few images, on which a model makes no error, is
# largest at T = 0: test images would get a loss that is many times larger.
DEVIATION = 0.5


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `calibrate` found; `model.record["calibration"]` has the same as a dict.

    Attributes:
        temperature: T of softmax(logits / T); of several labels one of each class, of
            sigmoid(logit / T + offset).
        model_sha256: Hash of the head, of all vectors of weights and of the image size.
        images: Number of images of the first half, for temperature and thresholds, and
            of the second, for scores and energies.
        offset: Of several labels, that of each class.
        thresholds: Of several labels, the smallest probability at which an image has a
            class; above 1 if the class is never predicted.
        method, penalty, rank: As for `kerasvit.evaluation.fit_conformal`, of one label.
        scores: Sorted conformal scores of the right classes, of one label.
        energies: Sorted energy scores.
    """

    temperature: float | list[float]
    model_sha256: str
    images: list[int]
    offset: list[float] | None = None
    thresholds: list[float] | None = None
    method: str = "raps"
    penalty: float = 0.1
    rank: int = 1
    scores: list[float] | None = None
    energies: list[float] | None = None

    fewest: ClassVar = 20  # images, so that each half has ten

    @classmethod
    def halves(cls, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of the images of both halves, ascending, as `fit` uses.

        The first, (count // 2,), gives temperature and thresholds, and may choose other
        things too, such as the epoch. The second gives scores and energies, and must
        choose nothing.

        Args:
            count: Number of validation images.
            seed: Seed of the division, ≥ 0: as for `calibrate`.

        Raises:
            ArgumentError: There are fewer than 20 images.
        """
        if count < cls.fewest:
            raise ArgumentError(
                f"A calibration needs {cls.fewest} validation images or more: half of "
                "them for the temperature, half for conformal sets. Received: "
                f"{count}.",
                "data",
            )
        order = np.random.default_rng([seed, count]).permutation(count)
        return np.sort(order[: count // 2]), np.sort(order[count // 2 :])

    @classmethod
    def fit(
        cls,
        model: keras.Model,
        logits: np.ndarray,
        labels: np.ndarray,
        *,
        method: str = "raps",
        precision: float | None = None,
        recall: float | None = None,
        seed: int = 0,
    ) -> "Calibration":
        """Returns the calibration by outputs that are known, as `calibrate` does.

        Args:
            model: The model, for its hash.
            logits: Its outputs, (count, classes).
            labels: Class indices (count,), or 0 and 1 (count, classes) of several
                labels.
            method, precision, recall, seed: As for `calibrate`.

        Raises:
            ArgumentError: There are fewer than 20 images, or an argument is wrong.
        """
        first, second = cls.halves(len(logits), seed)
        known: dict[str, Any] = {
            "model_sha256": function_hash(model),
            "images": [len(first), len(second)],
        }
        held, held_labels = logits[second], labels[second]
        known["energies"] = _kept(_energy_of(labels.ndim == 2)(held))
        logits, labels = logits[first], labels[first]
        if labels.ndim == 1:
            scale = temperatures.fit_temperature(logits, labels, deviation=DEVIATION)
            made = cls(scale, method=method, **known)
            given = method, made.penalty, made.rank
            scores = conformal.scores_of(held / scale, held_labels, *given)
            return dataclasses.replace(made, scores=_kept(scores))
        scaled = temperatures.fit_label_scaling(logits, labels, deviation=DEVIATION)
        limits = several_labels.fit_thresholds(
            logits, labels, precision=precision, recall=recall
        )
        limits = scaled(limits)
        with np.errstate(invalid="ignore"):  # limits that are not finite: see below
            shares = np.exp(-np.logaddexp(0, -limits))
        # A class that is never predicted, and one that no image has.
        shares = np.where(np.isposinf(limits), 2.0, shares)
        shares = np.where(np.isnan(limits), 0.5, shares)
        if missing := np.flatnonzero(np.isnan(limits)).tolist():
            names = (found_record(model) or {}).get("label_names")
            names = names if isinstance(names, list) else range(len(limits))
            log.warning(
                "No image of the half that gives thresholds has the classes %s: they "
                "get 0.5. Give more validation images.",
                ", ".join(str(names[i]) for i in missing[:20]),
            )
        known["offset"] = scaled.offset.tolist()
        temperature = (1 / scaled.scale).tolist()
        return cls(temperature, thresholds=shares.tolist(), **known)

    @classmethod
    def of(cls, model: keras.Model, needed: bool = True) -> "Calibration | None":
        """Returns the calibration in the record of a model, or None.

        Args:
            model: A model of kerasvit.
            needed: False: of one that is damaged, or of another head, it warns and
                returns None.

        Raises:
            ArgumentError: It is damaged, or the model has changed since.
        """
        stored = (found_record(model) or {}).get("calibration")
        if stored is None:
            return None
        if not _is_sound(stored, model.outputs[0].shape[-1]):
            problem = "is damaged"
        elif stored["model_sha256"] != function_hash(model):
            problem = "is of other outputs: the model has changed since"
        else:
            return cls(**stored)
        message = (
            f"The calibration in the model's record {problem}. Calibrate it again, "
            "`kerasvit.calibrate(model, data)`, or remove the calibration: `del "
            "model.record['calibration']`."
        )
        if needed:
            raise ArgumentError(message, "model")
        log.warning("%s It is not used.", message)
        return None

    def save(self, folder: str | PathLike[str]) -> None:
        """Writes the calibration into config.json of a model's folder.

        Models that are loaded from the folder have it then. The weights stay as they
        are.

        Args:
            folder: Folder of `save_pretrained` with the model that was calibrated.

        Raises:
            ArgumentError: The folder has no model of kerasvit, or one with another
                number of classes.
        """
        path = local_folder(folder)
        config = read_json(path / CONFIG)
        own = config.get("kerasvit")
        if not isinstance(own, dict) or not isinstance(own.get("kwargs"), dict):
            raise ArgumentError(
                f"`folder` must be one of save_pretrained, with a {CONFIG}. Received: "
                f"{folder}.",
                "folder",
            )
        stored = dataclasses.asdict(self)
        several = own.get("problem_type") == SEVERAL_LABELS
        is_same = several == isinstance(self.temperature, list)
        if not is_same or not _is_sound(stored, own["kwargs"].get("num_classes")):
            raise ArgumentError(
                f"`folder` must have the model that was calibrated. Received: {folder},"
                f" with {own['kwargs'].get('num_classes')} classes and "
                f"{'several labels' if several else 'one label'} per image.",
                "folder",
            )
        own["calibration"] = stored
        with new_files(path) as new:
            new.write(CONFIG, json.dumps(config, indent=2).encode())
            new.put()

    def sets(self, logits: np.ndarray, coverage: float) -> np.ndarray:
        """Returns whether each class is in the set of each image, (count, classes).

        Args:
            logits: Of the model, (count, classes).
            coverage: In (0, 1).

        Raises:
            ArgumentError: The second half had fewer than 1 / (1 - coverage) images.
        """
        if coverage > 1 - 1 / KEPT:
            raise ArgumentError(
                f"`coverage` must be at most {1 - 1 / KEPT}: a calibration keeps "
                f"{KEPT:,} scores. Received: {coverage}. For more, see "
                "`kerasvit.evaluation.fit_conformal`.",
                "coverage",
            )
        rule = conformal.of_scores(
            self.scores or [], coverage, self.method, self.penalty, self.rank
        )
        return rule(logits / self.temperature)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Returns the calibrated probabilities, float64 (count, classes)."""
        scaled = np.asarray(logits, "float64") / self.temperature
        if self.offset is not None:
            scaled += self.offset
            return np.exp(-np.logaddexp(0, -scaled))
        return np.exp(log_probabilities(scaled))

    def unusual(self, logits: np.ndarray) -> np.ndarray:
        """Returns the share of images that is less unusual, in [0, 1), (count,).

        Near 1 an image is unlike the validation images, by its energy. Of images like
        these, it is above c for a share 1 - c at most.
        """
        energies = np.asarray(self.energies or [])
        found = _energy_of(isinstance(self.temperature, list))(logits)
        return np.searchsorted(energies, found) / (len(energies) + 1)


def calibrate(
    model: keras.Model,
    data: Any,
    *,
    method: Literal["threshold", "aps", "raps"] = "raps",
    precision: float | None = None,
    recall: float | None = None,
    batch_size: int = 32,
    seed: int = 0,
) -> Calibration:
    """Calibrates a classifier on validation images, and keeps the result in its record.

    The images are divided in two at random. One half gives the temperature (of several
    labels: that of each class, and its threshold). The other gives the scores of
    conformal sets and of unlike images. `kerasvit.classify` uses them, and
    `save_pretrained` and `push_to_hub` save them.

        kerasvit.calibrate(model, images.validation)
        kerasvit.classify(model, "photo.jpg", coverage=0.9)     # a set of classes
        kerasvit.classify(model, "photo.jpg", ood=True)         # and how unusual it is

    Args:
        model: A classifier of kerasvit, or a trainer of one. Of several labels if its
            record has the `problem_type` "multi_label_classification".
        data: Images that were not trained on, and that chose nothing else, such as the
            epoch, in any of the forms of `kerasvit.fit_head`; at least 20.
        method: Score of conformal sets: see `kerasvit.evaluation.fit_conformal`.
        precision, recall: As for `kerasvit.evaluation.fit_thresholds`, of several
            labels; None: thresholds with the best F1 score.
        batch_size: Number of images per call of the model, for arrays.
        seed: Seed of the division.

    Raises:
        ArgumentError: The model has no record; `data` has another form, or too few
            images; an argument is wrong.
    """
    model = inner_model(model)
    record = found_record(model)
    if record is None or record["kwargs"].get("num_classes") == 0:
        raise ArgumentError(
            f"`model` must be a classifier of kerasvit, with a head. Received: "
            f"{model!r:.200}.",
            "model",
        )
    one_of("method", method, conformal.METHODS)
    integer("seed", seed, 0)
    several = record.get("problem_type") == SEVERAL_LABELS
    if not several and (precision, recall) != (None, None):
        raise ArgumentError(
            "`precision` and `recall` are for several labels per image. Leave them "
            "out, or fit the head with task='multilabel'.",
            *("precision", "recall"),
        )
    logits, labels = _outputs(model, data, several, batch_size)
    options: Any = {"precision": precision, "recall": recall, "seed": seed}
    found = Calibration.fit(model, logits, labels, method=method, **options)
    record["calibration"] = dataclasses.asdict(found)
    return found


def _is_sound(stored: Any, classes: int) -> bool:
    """Whether a record's calibration has the fields of a `Calibration`."""
    fields = dataclasses.fields(Calibration)
    if not isinstance(stored, dict) or stored.keys() != {f.name for f in fields}:
        return False
    several = isinstance(stored["temperature"], list)
    scales = stored["temperature"] if several else [stored["temperature"]]
    of_classes = [stored[name] for name in ("offset", "thresholds")]
    of_images = [stored["energies"], *([] if several else [stored["scores"]])]
    lists = [scales, stored["images"], *of_images, *(of_classes if several else [])]
    if not all(isinstance(x, list) and x and all(map(_is_number, x)) for x in lists):
        return False
    return (
        all(x > 0 for x in scales)
        and len(scales) == (classes if several else 1)
        and all(len(x) == classes if several else x is None for x in of_classes)
        and stored["method"] in conformal.METHODS
        and all(_is_number(stored[x]) and stored[x] >= 0 for x in ("penalty", "rank"))
        and len(stored["images"]) == 2
        and isinstance(stored["model_sha256"], str)
    )


def _is_number(value: Any) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and math.isfinite(value)


def function_hash(model: keras.Model) -> str:
    """Returns a SHA-256 of what decides about the outputs, quickly.

    It is of the image size, the head, and all vectors, such as biases, which a training
    of other layers changes, too. They are rounded to bfloat16, so that a file of 16
    bits has the same.
    """
    digest = hashlib.sha256(str(tuple(model.inputs[0].shape[1:])).encode())
    of_head = [weight for head in heads_of(model) for weight in head.weights]
    vectors = [weight for weight in model.weights if len(weight.shape) == 1]
    for weight in (*of_head, *vectors):
        values = keras.ops.convert_to_numpy(weight).astype("float32")
        digest.update(values.astype(ml_dtypes.bfloat16).tobytes())
    return digest.hexdigest()


def _outputs(
    model: keras.Model, data: Any, several: bool, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits of a model, float32 (count, classes), and the labels."""
    classes = model.outputs[0].shape[-1]
    read = label_rows if several else class_indices
    parts: tuple[list, list] = [], []
    size = integer("batch_size", batch_size, 1)
    for x, y, _ in read_again(model, data, size):
        logits = keras.ops.convert_to_numpy(model.predict_on_batch(x))
        parts[0].append(logits.astype("float32"))
        parts[1].append(read("data", y, len(logits), classes))
    if not parts[0]:
        raise ArgumentError("`data` has no images.", "data")
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def _kept(scores: np.ndarray) -> list[float]:
    """Returns sorted scores; of more than `KEPT` some at random."""
    order = np.random.default_rng(0).permutation(len(scores))[:KEPT]
    return np.sort(scores[order]).tolist()


def _energy_of(several: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function from logits to energy scores."""
    return joint_energy_score if several else energy_score
