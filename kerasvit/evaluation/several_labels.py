"""Numbers of a classifier whose images have several labels, or none."""

from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError

from .arrays import label_table, matrix, share


def average_precision(logits: Any, labels: Any, weights: Any = None) -> np.ndarray:
    """Returns the average precision of each class, in [0, 1], float64 (classes,).

    It is Σ (R_n - R_{n-1}) P_n over the distinct thresholds, without interpolation: NaN
    for a class that no image has. The mAP is `np.nanmean` of it.

    Args:
        logits: Array (count, classes); probabilities give the same.
        labels: Whether each image has each class, (count, classes) of 0 and 1.
        weights: Weights of the images, (count,), ≥ 0, or None.

    Raises:
        ArgumentError: A logit is not finite, or labels or weights have another shape.

    Reference: scikit-learn's `average_precision_score`.
    """
    logits = matrix("logits", logits)
    labels = label_table("labels", labels, logits.shape)
    count = len(logits)
    weights = np.ones(count) if weights is None else np.asarray(weights, "float64")
    if weights.shape != (count,):
        raise ArgumentError(
            f"`weights` must have a number for each of {count} images. Received: shape "
            f"{weights.shape}.",
            "weights",
        )
    order = np.argsort(-logits, axis=0, kind="stable")
    sorted_logits = np.take_along_axis(logits, order, axis=0)
    hits = np.take_along_axis(labels, order, axis=0) * weights[order]
    # Images with equal logits reach a threshold together: the last one counts.
    is_last = np.ones(logits.shape, bool)
    is_last[:-1] = sorted_logits[:-1] != sorted_logits[1:]
    rows = np.where(is_last, np.arange(count)[:, None], count)
    last = np.minimum.accumulate(rows[::-1], axis=0)[::-1]
    with np.errstate(invalid="ignore"):  # a class without images, and weights of 0
        precision = hits.cumsum(axis=0) / weights[order].cumsum(axis=0)
        precision = np.take_along_axis(precision, last, axis=0)
        return np.where(hits > 0, hits * precision, 0.0).sum(0) / hits.sum(0)


def f1_scores(predictions: Any, labels: Any) -> dict[str, float]:
    """Returns the F1 score of labels in three averages, in [0, 1].

    Args:
        predictions: Whether each class is predicted, (count, classes) of 0 and 1.
        labels: Whether each image has each class, of the same shape.

    Returns:
        `micro`, of all labels together; `macro`, the mean over the classes that an
        image has; `samples`, the mean over the images, of which one without labels
        counts 1 if none is predicted.

    Raises:
        ArgumentError: The shapes differ, or a value is neither 0 nor 1.

    Reference: scikit-learn's `f1_score`.
    """
    labels = label_table("labels", labels, np.shape(labels))
    if labels.ndim != 2 or not labels.size:
        raise ArgumentError(
            "`labels` must be an array (images, classes) that is not empty. Received: "
            f"shape {labels.shape}.",
            "labels",
        )
    predictions = label_table("predictions", predictions, labels.shape)
    both, sizes = labels & predictions, labels.astype(int) + predictions
    present = labels.any(axis=0)
    return {
        "micro": float(_f1(both, sizes, None)),
        "macro": float(_f1(both, sizes, 0)[present].mean()) if present.any() else 1.0,
        "samples": float(_f1(both, sizes, 1).mean()),
    }


def _f1(both: np.ndarray, sizes: np.ndarray, axis: int | None) -> np.ndarray:
    """Returns 2 |both| / (|labels| + |predictions|); 1 where there are none."""
    sums = sizes.sum(axis=axis)
    return np.where(sums, 2 * both.sum(axis=axis) / np.maximum(1, sums), 1.0)


def fit_thresholds(
    logits: Any,
    labels: Any,
    *,
    precision: float | None = None,
    recall: float | None = None,
    conformal: bool = False,
) -> np.ndarray:
    """Returns the threshold of each class: an image has it if its logit is ≥ this.

    It has the largest F1 score on the images; or, with `precision`, the largest recall
    with at least this precision; or, with `recall`, the largest that still has this
    recall. Of equal scores it is the largest threshold, in the middle between two
    logits.

    Args:
        logits: Array (count, classes) of validation images.
        labels: Whether each image has each class, (count, classes) of 0 and 1.
        precision, recall: Share in (0, 1), at most one of both.
        conformal: Whether the recall is that of other images, on average at least. Of
            the n images with a class it is the k-th smallest logit, k = ⌊(n + 1) (1 -
            recall)⌋, or -∞, so that all images have the class, if n is too small.

    Returns:
        Logits, float64 (classes,). ∞, so that it is never predicted, for a class whose
        precision is never reached; NaN for a class that no image has, which has no
        threshold.

    Raises:
        ArgumentError: A logit is not finite, or another argument is wrong.
    """
    if precision is not None and recall is not None:
        raise ArgumentError(
            "Give `precision` or `recall`, not both: one follows from the other.",
            *("precision", "recall"),
        )
    for name, value in (("precision", precision), ("recall", recall)):
        if value is not None:
            share(name, value)
    logits = np.asarray(matrix("logits", logits), "float64")
    labels = label_table("labels", labels, logits.shape)
    if conformal:
        if recall is None:
            raise ArgumentError("`conformal` is for a `recall`. Give it.", "conformal")
        return np.array(
            [
                _reached(x[has == 1], recall)
                for x, has in zip(logits.T, labels.T, strict=True)
            ]
        )
    found = np.full(logits.shape[1], np.nan)
    for i in np.flatnonzero(labels.any(axis=0)):
        found[i] = _threshold(logits[:, i], labels[:, i], precision, recall)
    return found


def _reached(logits: np.ndarray, recall: float) -> float:
    """Returns what the logit of another image with the class reaches that often."""
    place = int((len(logits) + 1) * (1 - recall) + 1e-9)
    return float(np.sort(logits)[place - 1]) if place else -np.inf


def _threshold(
    logits: np.ndarray,
    has: np.ndarray,
    precision: float | None,
    recall: float | None,
) -> float:
    values, places = np.unique(-logits, return_inverse=True)
    values = -values  # distinct, the largest first
    right = np.bincount(places, has).cumsum()
    predicted = np.bincount(places).cumsum()
    precisions, recalls = right / predicted, right / has.sum()
    if recall is not None:
        best = int(np.argmax(recalls >= recall - 1e-12))
    elif precision is not None:
        fits = precisions >= precision - 1e-12
        if not fits.any():
            return np.inf
        best = int(np.argmax(np.where(fits, recalls, -1)))
    else:
        best = int(np.argmax(2 * right / (predicted + has.sum())))
    if best + 1 == len(values):
        return float(values[best])
    middle = (values[best] + values[best + 1]) / 2  # may round to the smaller one
    return float(middle if middle > values[best + 1] else values[best])
