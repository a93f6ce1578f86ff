"""Numbers of a classifier from its logits: accuracy, likelihood and calibration."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer

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
