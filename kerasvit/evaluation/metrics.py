"""Numbers of a classifier from its logits: accuracy, likelihood and calibration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasvit.arguments import ArgumentError, integer

from .intervals import binomial_interval, bootstrap_interval

# Of a single class for each image, or of several that are all right: ReaL.
Labels = np.ndarray | Sequence[np.ndarray]


def top_k_hits(logits: Any, labels: Labels, k: int = 1) -> np.ndarray:
    """Returns for each image whether one of its classes is among the k most probable.

    Of equal logits those of the first classes come first.

    Args:
        logits: Array (count, classes); probabilities give the same.
        labels: Class indices (count,), or for each image an array of its classes, of
            which one suffices (Beyer et al. 2020, arXiv 2006.07159, section 3).
        k: Number of predictions, ≥ 1; more than the classes are all classes.

    Returns:
        Booleans (count,).

    Raises:
        ArgumentError: A logit is not finite, or a label is no class.
    """
    logits, chosen = _checked(logits, labels)
    k = integer("k", k, 1)
    best = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.asarray(np.take_along_axis(chosen, best, axis=1).any(axis=1))


def negative_log_likelihood(logits: Any, labels: np.ndarray) -> np.ndarray:
    """Returns -log p(label) of each image, ≥ 0, float64 (count,).

    Args:
        logits: Array (count, classes).
        labels: Class indices (count,).

    Raises:
        ArgumentError: As for `top_k_hits`.
    """
    logits, _ = _checked(logits, labels)
    return -log_probabilities(logits)[np.arange(len(logits)), np.asarray(labels)]


def expected_calibration_error(
    confidences: np.ndarray, hits: np.ndarray, bins: int = 15
) -> float:
    """Returns the mean of |accuracy - confidence| over bins, in [0, 1].

    Bin i has the images of confidence in ((i - 1) / bins, i / bins], and the share of
    its images as weight.

    Args:
        confidences: Probability of the predicted class, in (0, 1], (count,).
        hits: Whether the prediction is right (count,).
        bins: Number of bins of equal width, ≥ 1.

    Reference: Guo et al. 2017, arXiv 1706.04599, equation 3; as in gpleiss/
    temperature_scaling.
    """
    bins = integer("bins", bins, 1)
    confidences = np.asarray(confidences, "float64")
    gaps = np.asarray(hits, "float64") - confidences
    places = np.clip(np.ceil(confidences * bins).astype(int) - 1, 0, bins - 1)
    sums = np.bincount(places, gaps, minlength=bins)
    return float(np.abs(sums).sum() / max(1, len(gaps)))


def log_probabilities(logits: Any) -> np.ndarray:
    """Returns the logarithm of the softmax, float64 (count, classes)."""
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _checked(logits: Any, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits as an array, and the classes of the images as booleans."""
    logits = np.asarray(logits)
    one = logits.shape[1:] == (1,)  # the logit of a sigmoid: each image would be right
    if logits.ndim != 2 or one or len(logits) != len(labels):
        raise ArgumentError(
            "`logits` must have the shape (count, classes), with two classes or more, "
            "and `labels` one entry for each image. Received: "
            f"{logits.shape} and {len(labels)} labels.",
            *("logits", "labels"),
        )
    wrong = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(wrong):
        raise ArgumentError(
            f"`logits` of {len(wrong)} of {len(logits)} images are not finite, such as "
            f"those of image {wrong[0]}: the weights are damaged, or float16 overflows "
            "(use float32 or mixed_bfloat16).",
            "logits",
        )
    each = [np.atleast_1d(label) for label in labels]
    counts = [len(label) for label in each]
    rows = np.repeat(np.arange(len(logits)), counts)
    columns = np.concatenate(each).astype(int) if each else np.zeros(0, int)
    classes = logits.shape[1]
    if len(columns) and (columns.min() < 0 or columns.max() >= classes):
        raise ArgumentError(
            f"`labels` must be classes from 0 to {classes - 1}. Received: from "
            f"{columns.min()} to {columns.max()}.",
            "labels",
        )
    chosen = np.zeros(logits.shape, bool)
    chosen[rows, columns] = True
    return logits, chosen


class Estimate(NamedTuple):
    """A number, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def scores(logits: Any, labels: Labels) -> dict[str, Estimate]:
    """Returns the numbers of a classifier on images.

    Args:
        logits: Array (count, classes).
        labels: As for `top_k_hits`. At least one class for each image.

    Returns:
        `top1` and `top5`, shares with Wilson's interval; `ece`, the expected
        calibration error with 15 bins; and, if each image has one class, `nll`, the
        mean negative log-likelihood. The intervals of the last two are bootstrapped.
        That of the ECE covers less than 95 %: in a simulation with 200 to 10,000
        images, 90 % for a true ECE of 0.05, and half if the model is calibrated, whose
        measured ECE is noise.

    Raises:
        ArgumentError: As for `top_k_hits`; or an image has no class.
    """
    counts = np.array([np.size(label) for label in labels])
    if not len(counts) or not counts.all():
        raise ArgumentError(
            f"`labels` must have a class for each image: {int((counts == 0).sum())} of "
            f"{len(counts)} have none. Leave these images out.",
            "labels",
        )
    hits = top_k_hits(logits, labels)
    found = {
        "top1": _share(hits),
        "top5": _share(top_k_hits(logits, labels, 5)),
    }
    if (counts == 1).all():
        single = np.array([np.ravel(label)[0] for label in labels])
        found["nll"] = _mean(negative_log_likelihood(logits, single))
    found["ece"] = _calibration(np.exp(log_probabilities(logits).max(axis=1)), hits)
    return found


def _share(hits: np.ndarray) -> Estimate:
    interval = binomial_interval(int(hits.sum()), len(hits))
    return Estimate(float(hits.mean()), *interval)


def _mean(values: np.ndarray) -> Estimate:
    interval = bootstrap_interval(lambda i: float(values[i].mean()), len(values))
    return Estimate(float(values.mean()), *interval)


def _calibration(confidences: np.ndarray, hits: np.ndarray) -> Estimate:
    def error(i: np.ndarray) -> float:
        return expected_calibration_error(confidences[i], hits[i])

    whole = expected_calibration_error(confidences, hits)
    low, high = bootstrap_interval(error, len(hits))
    return Estimate(whole, max(0.0, min(low, whole)), max(high, whole))
