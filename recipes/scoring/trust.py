"""How far the probabilities of a model can be trusted: `evaluate.py --trust`.

The validation images of a set calibrate a model, with `kerasvit.Calibration`, and its
test images score it: likelihood and calibration error before and after, the coverage of
conformal sets, the errors at each share of answers, and how well images of other sets
are told from them. A set is divided as in a training.
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command import command_line
from training import training_data

from kerasvit import Calibration, data, evaluation
from kerasvit.evaluation import Estimate, brier_score

from . import accuracy, features, label_table, results, sets
from .candidates import Candidate
from .estimates import of_mean, resampled
from .outputs import are_probabilities, as_logits

MEASURE = "trust"
METHODS = {"threshold": "threshold sets", "aps": "APS sets", "raps": "RAPS sets"}
RECALL = "thresholds"  # of several labels, that the share `coverage` reaches
STATED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # coverages of a curve
OF_CLASS = 20  # images from which its factor and offset are fitted
RISK = 0.05  # share of errors of which the largest share of answers is given
NEIGHBORS = 50  # k of Sun et al. 2022, arXiv 2204.06507, for many images


@dataclasses.dataclass(frozen=True)
class Divided:
    """A set of images in three parts.

    Attributes:
        train: `kerasvit.data.Images`.
        validation, test: `sets.ImageSet`.
    """

    train: data.Images
    validation: sets.ImageSet
    test: sets.ImageSet


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a model returns for images.

    Attributes:
        logits: (count, classes).
        labels: Classes (count,); of several labels 0 and 1, (count, classes).
    """

    logits: np.ndarray
    labels: np.ndarray

    def part(self, rows: np.ndarray) -> "Outputs":
        """Returns those of some images."""
        return Outputs(self.logits[rows], self.labels[rows])


def divided(
    name: str,
    most: int,
    share: float | None,
    shard: tuple[int, int],
    channels: int,
    task: str,
) -> Divided:
    """Opens a set.

    Args:
        name: Path, built-in set, or name of tensorflow-datasets.
        most: Maximum number of training images, for features.
        share: `validation_share` of the training.
        shard, channels, task: As for `sets.find`.

    Raises:
        ValueError: There is no such set, or it has no validation images of its own.
    """
    path = Path(os.path.expanduser(name))
    place = str(path) if path.exists() else None
    options = {"channels": channels, "task": task, "shard": shard}
    if place is None or not _has_validation(path, task):
        options["validation_share"] = share
    found = training_data.find(name, place, **options)
    if found.validation is found.test:
        raise ValueError(
            f"`trust`: {name} has no validation images beside those of the test, and "
            "images that calibrate a model cannot score it. Give a folder or table "
            "with the parts train, validation and test, or without parts."
        )
    held, test = (
        sets.of_dataset(path.name if place else name, dataset)
        for dataset in (dataclasses.replace(found, test=found.validation), found)
    )
    return Divided(sets.first(found.train.images, most), held, test)


def _has_validation(path, task):
    """Whether a folder or a table has validation images of its own."""
    if task == "multilabel":
        rows = data.read_table(path, task, training=False).rows
        return any(row.part == "validation" for row in rows)
    return "validation" in data.find_files(path)


def tasks(
    models: Sequence[Candidate],
    found: Sequence[Divided],
    unlike: Sequence[sets.ImageSet],
    config,
) -> list[results.Task]:
    """Returns a task for each model and set.

    Args:
        models: Models with classes.
        found: Sets, divided.
        unlike: Images of no class of the models.
        config: `settings.Config`.

    Raises:
        ValueError: A set has too few validation images, or no class of a model.
    """
    for each in found:
        _check_count(each, config.coverage)
        if not each.test.several and (config.precision or config.recall):
            raise ValueError(
                "`precision`, `recall` are for models of several labels. Leave them "
                "out."
            )
    return [_task(model, each, unlike, config) for model in models for each in found]


def _check_count(found, coverage):
    """Raises a `ValueError` for too few validation images."""
    count, fewest = len(found.validation.labels), Calibration.fewest
    of_one = not found.test.several
    needed = math.ceil(1 / (1 - coverage) - 1e-9) if of_one else 0
    if count >= fewest and count - count // 2 >= needed:
        return
    text = f"`trust`: {found.test.name} has {count} validation images. "
    if needed > fewest / 2:
        raise ValueError(
            f"{text}A coverage of {coverage:g} needs {2 * needed}, half of them for "
            "the temperature and half for the sets. Give more images, or a smaller "
            "--coverage."
        )
    raise ValueError(f"{text}A calibration needs {fewest}. Give more images.")


def _task(model, found, unlike, config):
    matches = [
        accuracy.match_classes(each, model) for each in (found.validation, found.test)
    ]
    if found.test.several and matches[0].restricted is not None:
        names = model.label_names or [str(i) for i in range(model.classes)]
        known = {names[i] for i in matches[0].restricted}
        raise ValueError(
            f"`trust`: {found.test.name} says nothing about the classes "
            f"{accuracy.listed([x for x in names if x not in known])} of {model.name}. "
            "A calibration needs images with each class. Give such a table, or score "
            "the model without --trust."
        )

    def compute(predict):
        images = found.validation.images, found.test.images
        outputs = [
            _outputs(model.outputs(predict, each), match, found.test.several)
            for each, match in zip(images, matches, strict=True)
        ]
        others = _unlike(predict, model, found, unlike, outputs[1].logits)
        with command_line.checking_input():
            limits = {"precision": config.precision, "recall": config.recall}
            measured = measure(model.model, *outputs, config.coverage, **limits)
            for name, scores in others.items():
                measured["parts"][name] = _detection(*scores)
        for part, scores in measured["parts"].items():
            measured["parts"][part] = results.Part(model.classes, scores)
        return {"unmatched": matches[1].unmatched, **measured}

    labels = np.concatenate([[len(x), *x] for x in found.validation.labels])
    settings = {
        **results.settings(model, found.test),
        "coverage": config.coverage,
        "thresholds": [config.precision, config.recall],
        "calibrated_on": hashlib.sha256(labels.astype("int64").tobytes()).hexdigest(),
        "calibrated_pixels": found.validation.digest,
        "unlike": {each.name: [len(each.labels), each.digest] for each in unlike},
    }
    settings.pop("calibration", None)  # an earlier one changes nothing here
    return results.Task(model, found.test.name, MEASURE, settings, compute)


def _outputs(outputs, match, several):
    """Returns the `Outputs` for the images with a class of the model."""
    if several:
        labels = np.zeros(outputs.shape, "uint8")
        for row, classes in zip(labels, match.labels, strict=True):
            row[classes] = 1
        return Outputs(outputs, labels)
    used = [len(each) == 1 for each in match.labels]
    labels = np.array([each[0] for each in match.labels if len(each) == 1], int)
    return Outputs(as_logits(outputs[used]), labels)


def measure(
    model, held: Outputs, test: Outputs, coverage: float, **limits: float | None
) -> dict:
    """Returns the fields of a `Result`, with {part: {name: `Estimate`}}.

    Args:
        model: `keras.Model`, for the hash of its head.
        held, test: For the validation and the test images.
        coverage: Of the sets.
        limits: `precision` and `recall` of `Calibration.fit`.

    Raises:
        ValueError: An output is not finite, or there are too few images.
    """
    calibrated = Calibration.fit(model, held.logits, held.labels, **limits)
    if held.labels.ndim == 2:
        parts, arrays = _of_labels(calibrated, held, test, coverage)
    else:
        parts, arrays = _of_one_label(calibrated, model, held, test, coverage)
    return {
        "images": len(test.labels),
        "parts": parts,
        "right": arrays,
        "calibration": dataclasses.asdict(calibrated),
    }


def _of_one_label(calibrated, model, held, test, coverage):
    first = held.part(Calibration.halves(len(held.labels))[0])
    scaled = test.logits / calibrated.temperature
    parts = {
        "as trained": _likelihood(test.logits, test.labels),
        "temperature": _likelihood(scaled, test.labels)
        | {"value": Estimate(*[calibrated.temperature] * 3)},
    }
    if np.bincount(first.labels, minlength=test.logits.shape[1]).min() >= OF_CLASS:
        vector = evaluation.fit_vector_scaling(first.logits, first.labels)
        parts["vector scaling"] = _likelihood(vector(test.logits), test.labels)
    rows, curve = np.arange(len(test.labels)), []
    for method, name in METHODS.items():
        by = Calibration.fit(model, held.logits, held.labels, method=method)
        parts[name] = _of_sets(by.sets(test.logits, coverage), test.labels)
        if method == calibrated.method:
            for stated in STATED:
                if len(by.scores) >= math.ceil(1 / (1 - stated) - 1e-9):
                    chosen = by.sets(test.logits, stated)
                    curve.append((stated, chosen[rows, test.labels].mean()))
    probabilities = calibrated.probabilities(test.logits)
    before = np.exp(evaluation.log_probabilities(test.logits)).max(1)
    hits = probabilities.argmax(1) == test.labels

    def answers(rows):
        found = evaluation.risk_coverage(probabilities[rows].max(1), hits[rows])
        return {"aurc": found.area, "answered": found.coverage_at(RISK)}

    parts["selection"] = resampled(answers, len(hits))
    arrays = {
        "hits": hits,
        "confidences": np.stack([before, probabilities.max(1)]).astype("float32"),
        "coverages": np.array(curve),
    }
    return parts, arrays


def _likelihood(logits, labels):
    known = evaluation.scores(logits, labels)
    probabilities = np.exp(evaluation.log_probabilities(logits))
    found = {name: known[name] for name in ("top1", "nll", "ece")}
    return found | {"brier": of_mean(brier_score(probabilities, labels))}


def _of_sets(chosen, labels):
    right = chosen[np.arange(len(labels)), labels]
    ends = evaluation.binomial_interval(int(right.sum()), len(right))
    return {
        "coverage": Estimate(float(right.mean()), *ends),
        "size": of_mean(chosen.sum(1)),
    }


def _of_labels(calibrated, held, test, coverage):
    parts = {}
    raw = 1 / (1 + np.exp(-test.logits.astype("float64")))
    thresholds = np.array(calibrated.thresholds)
    probabilities = calibrated.probabilities(test.logits)
    for name, shares, limits in (
        ("as trained", raw, label_table.HALF),
        ("calibrated", probabilities, thresholds),
    ):
        right = np.where(test.labels == 1, shares, 1 - shares)
        losses = -np.log(np.maximum(right, np.finfo("float64").tiny)).mean(1)

        def scores(rows, shares=shares, limits=limits):
            truth, chosen = test.labels[rows], shares[rows] >= limits
            found = label_table.of_outputs(shares[rows], truth, limits)
            right = (truth * chosen).sum()
            return {
                **{key: found[key] for key in results.LABEL_METRICS[1:]},
                "precision": right / max(1, chosen.sum()),
                "recall": right / max(1, truth.sum()),
            }

        parts[name] = {
            "loss": of_mean(losses),
            "brier": of_mean(brier_score(shares, test.labels)),
            **resampled(scores, len(losses)),
        }
    # The second half, as of conformal sets, gives thresholds that most labels reach.
    second = held.part(Calibration.halves(len(held.labels))[1])

    def reached(stated):
        known = second.logits, second.labels
        options = {"recall": stated, "conformal": True}
        chosen = test.logits >= evaluation.fit_thresholds(*known, **options)
        return int((chosen * test.labels).sum()), chosen.sum(1)

    (found, sizes), labels = reached(coverage), max(1, int(test.labels.sum()))
    ends = evaluation.binomial_interval(found, labels)
    parts[RECALL] = {
        "recall": Estimate(found / labels, *ends),
        "size": of_mean(sizes),
    }
    arrays = {
        "hits": test.labels,
        "confidences": np.stack([raw, probabilities]).astype("float32"),
        "coverages": np.array([(x, reached(x)[0] / labels) for x in STATED]),
    }
    return parts, arrays


def _unlike(predict, model, found, unlike, logits):
    """Returns {name of a part: (scores of the test images, those of others)}."""
    if not unlike:
        return {}
    several, train = found.test.several, found.train
    distances = {}
    if type(model) is Candidate:  # one vector per image
        frozen = features.of_layer(model)

        def vectors(images):
            return features.of_images(predict, frozen, images)

        distances = _distances(vectors(train), train.labels, found)
        own = vectors(found.test.images)
    scores = {}
    for other in unlike:
        outputs = model.outputs(predict, other.images)
        has_energy = distances and not are_probabilities(outputs)
        pair, ways = (logits, outputs if several else as_logits(outputs)), {}
        if not several:
            ways["softmax"] = [*map(evaluation.softmax_score, pair)]
        if several or has_energy:  # of a mean of probabilities it is 0
            energy = evaluation.energy_score
            energy = evaluation.joint_energy_score if several else energy
            ways["energy"] = [*map(energy, pair)]
        if distances:
            pair = own, vectors(other.images)
            ways |= {way: [*map(by, pair)] for way, by in distances.items()}
        scores |= {f"{other.name} by {way}": pair for way, pair in ways.items()}
    return scores


def _distances(features, labels, found):
    """Returns {name: function of features} of distances to those of the training."""
    k = min(NEIGHBORS, len(features))
    ways = {"k-NN": lambda x: evaluation.neighbor_score(features, x, k)}
    if not found.test.several:
        known = features, labels
        classes = len(found.test.label_names)
        ways["Mahalanobis"] = lambda x: evaluation.mahalanobis_score(*known, x, classes)
    return ways


def _detection(own, others):
    def numbers(rows, other_rows):
        pair = own[rows], others[other_rows]
        return {
            "auroc": evaluation.detection_auroc(*pair),
            "fpr95": evaluation.detection_fpr(*pair),
        }

    return resampled(numbers, len(own), len(others))
