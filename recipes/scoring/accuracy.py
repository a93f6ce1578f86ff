"""Scores the outputs of models on sets: accuracy, likelihood and calibration."""

import itertools
from collections.abc import Sequence

import numpy as np
from command import command_line

from kerasvit import evaluation

from . import confusion, labels, results
from .outputs import as_logits


def tasks(
    candidates: Sequence, image_sets: Sequence, optional: bool = False
) -> list[results.Task]:
    """Returns a task for each model and set.

    Args:
        candidates: `candidates.Candidate` of each model.
        image_sets: `sets.ImageSet` of each set.
        optional: Whether to leave out models of other classes than a set, or without
            any.

    Raises:
        ValueError: A model has none of the classes of a set.
    """
    found = []
    for candidate, image_set in itertools.product(candidates, image_sets):
        if optional and not candidate.has_head:
            continue
        try:
            match = labels.match(image_set, candidate)
        except labels.NoCommonClass:
            if not optional:
                raise
            continue
        found.append(_task(candidate, image_set, match))
    return found


def _task(candidate, image_set, match):
    def compute(predict):
        outputs = candidate.outputs(predict, image_set.images)
        with command_line.checking_input():
            return scored(outputs, match)

    settings = results.settings(candidate, image_set)
    return results.Task(candidate, image_set.name, "", settings, compute)


def scored(outputs: np.ndarray, match: labels.Match) -> dict:
    """Returns the fields of a `Result` that the outputs determine.

    Args:
        outputs: Logits or probabilities (count, classes).
        match: Result of `labels.match`.

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


def _part(logits, true):
    return results.Part(logits.shape[1], evaluation.scores(logits, true))
