"""Scores the outputs of models on sets: accuracy, likelihood and calibration.

A class of a set is matched with one of the model by name, WordNet id or index.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from command import command_line

from kerasvit import evaluation, imagenet_names

from . import confusion, label_table, results
from .candidates import Candidate
from .estimates import resampled
from .outputs import as_logits
from .sets import ImageSet, class_names

IMAGENET = 1000  # classes of a model without names are those of ImageNet if so many
SHOWN = 5  # names in a message


class NoCommonClass(ValueError):
    """A model has none of the classes of a set."""


@dataclasses.dataclass(frozen=True)
class Match:
    """Classes of a model for the images of a set.

    Attributes:
        labels: For each image an array of classes of the model, empty if the model has
            none of them.
        restricted: Sorted classes of the model that occur in the set; None: all.
        unmatched: Names of the set's classes that the model does not have.
    """

    labels: list[np.ndarray]
    restricted: np.ndarray | None
    unmatched: list[str]


def tasks(
    candidates: Sequence[Candidate], image_sets: Sequence[ImageSet], optional=False
) -> list[results.Task]:
    """Returns a task for each model and set.

    Raises:
        ValueError: A model has none of the classes of a set; if `optional`, models of
            other classes or without any are left out instead.
    """
    found = []
    for candidate, image_set in itertools.product(candidates, image_sets):
        if optional and not candidate.has_head:
            continue
        try:
            match = match_classes(image_set, candidate)
        except NoCommonClass:
            if not optional:
                raise
            continue
        found.append(_task(candidate, image_set, match))
    return found


def _task(candidate, image_set, match):
    def compute(predict):
        outputs = candidate.outputs(predict, image_set.images)
        with command_line.checking_input():
            if image_set.several:
                return scored_labels(outputs, match, candidate)
            return scored(outputs, match)

    settings = results.settings(candidate, image_set)
    return results.Task(candidate, image_set.name, "", settings, compute)


def scored(outputs: np.ndarray, match: Match) -> dict:
    """Returns the fields of a `Result` that outputs (count, classes) determine.

    Raises:
        ValueError: An output is not finite, or an image is of a class that should not
            occur in the set.
    """
    used = np.array([len(each) > 0 for each in match.labels])
    logits = as_logits(outputs[used])
    true = [each for each in match.labels if len(each)]
    parts = {"all": _part(logits, true)}
    right = {"all": evaluation.top_k_hits(logits, true)}
    if (classes := match.restricted) is not None:
        if not np.isin(np.concatenate(true), classes).all():
            raise ValueError(
                f"`on`: all images must be of the {len(classes)} classes that occur in "
                "the published set. Prepare it again."
            )
        among = [np.searchsorted(classes, each) for each in true]
        parts["restricted"] = _part(logits[:, classes], among)
        right["restricted"] = evaluation.top_k_hits(logits[:, classes], among)
    if all(len(each) == 1 for each in true):  # ReaL has images of several classes
        classes = np.concatenate(true), logits.argmax(axis=1)
        right |= dict(zip(confusion.CLASSES, classes, strict=True))
    return {
        "images": len(true),
        "left_out": int((~used).sum()),
        "unmatched": match.unmatched,
        "parts": parts,
        "right": right,
    }


def scored_labels(logits: np.ndarray, match: Match, candidate: Candidate) -> dict:
    """Returns the fields of a `Result` for images with several labels.

    Classes that either the set or the model does not have are left out. The mAP and
    the macro F1 also leave out those that no image has.

    Args:
        logits: Outputs (count, classes).
        match: Classes of the model.
        candidate: The model, which may have thresholds.

    Raises:
        ValueError: An output is not finite.
    """
    labels = np.zeros(logits.shape, int)
    for row, classes in zip(labels, match.labels, strict=True):
        row[classes] = 1
    found = candidate.calibration
    thresholds = np.full(logits.shape[1], label_table.HALF)
    if found is not None:
        shares, thresholds = found.probabilities(logits), np.array(found.thresholds)
    else:
        shares = 1 / (1 + np.exp(-logits.astype("float64")))

    known = match.restricted
    columns = np.arange(len(thresholds)) if known is None else known

    def numbers(rows):
        found = (each[rows][:, columns] for each in (shares, labels))
        return label_table.of_outputs(*found, thresholds[columns])

    scores = resampled(numbers, len(labels))
    return {
        "images": len(labels),
        "unmatched": match.unmatched,
        "parts": {"all": results.Part(len(columns), scores)},
        "right": {
            label_table.OUTPUTS: shares.astype("float32"),
            label_table.LABELS: labels.astype("uint8"),
            label_table.THRESHOLDS: thresholds,
        },
    }


def _part(logits, true):
    return results.Part(logits.shape[1], evaluation.scores(logits, true))


def match_classes(
    image_set: ImageSet, candidate: Candidate, setting: str = "on"
) -> Match:
    """Matches by name, WordNet id or index.

    Case, and "_" for a space, make no difference. A class of ImageNet has its WordNet
    id, its line of names and each of these names. A name of two classes matches none.
    Classes match by index if neither the set nor the model has names. Messages name the
    option `setting`.

    Raises:
        NoCommonClass: The model has none of the classes of the set.
    """
    places = _places(candidate)
    names = image_set.label_names
    if not names:
        raise NoCommonClass(f"`{setting}`: no image of {image_set.name} has a label.")
    same = names == candidate.label_names
    if same or (not places and len(names) == candidate.classes):
        classes = np.arange(len(names))
    else:
        classes = np.array([places.get(_normal(name), -1) for name in names])
    if not places and all(re.fullmatch(r"\d+", name) for name in names):
        numbers = np.array([int(name) for name in names])
        classes = np.where(numbers < candidate.classes, numbers, -1)
    if (classes < 0).all():
        raise NoCommonClass(
            f"`{setting}`: {candidate.name} has none of the classes of "
            f"{image_set.name}: {listed(names)}. Its {candidate.classes} classes: "
            f"{listed(candidate.label_names or ['no names'])}. Give a model of these "
            "classes, or rename those of the set."
        )
    labels = [found[found >= 0] for found in (classes[x] for x in image_set.labels)]
    if not any(map(len, labels)) and not image_set.several:
        raise NoCommonClass(
            f"`{setting}`: no image of {image_set.name} is of a class of "
            f"{candidate.name}."
        )
    unmatched = [name for name, i in zip(names, classes, strict=True) if i < 0]
    occurring = image_set.restricted or range(len(names))
    restricted = np.unique([classes[i] for i in occurring if classes[i] >= 0])
    if len(restricted) == candidate.classes:
        restricted = None
    return Match(labels, restricted, unmatched)


def _places(candidate):
    """Returns {normal name: class}; {} for a model without names."""
    names = candidate.label_names
    if names is None and candidate.classes == IMAGENET:
        names = list(imagenet_names())
    if names is None:
        return {}
    known = [{_normal(name)} for name in names]
    if tuple(names) == imagenet_names():
        ids = class_names("imagenet2012")
        for found, name, own_id in zip(known, names, ids, strict=True):
            found |= {own_id, *map(_normal, name.split(","))}
    shared = Counter(each for found in known for each in found)
    return {
        each: i
        for i, found in enumerate(known)
        for each in found
        if shared[each] == 1  # "crane" is a bird and a machine
    }


def _normal(name):
    return name.replace("_", " ").casefold().strip()


def listed(names: Sequence[str]) -> str:
    """Returns the first names for a message, and how many others there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
