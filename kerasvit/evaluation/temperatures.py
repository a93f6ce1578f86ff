"""Calibration: probabilities that are as high as the share of images that are right."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kerasvit.arguments import ArgumentError, number

from .arrays import class_labels, label_table, matrix
from .metrics import log_probabilities

# A model that makes no error on the images would get infinite logits.
_LARGEST = 100.0


class VectorScaling(NamedTuple):
    """A factor and an offset of each logit.

    Attributes:
        scale: Factors > 0, (classes,).
        offset: Offsets, (classes,).
    """

    scale: np.ndarray
    offset: np.ndarray

    def __call__(self, logits: Any) -> np.ndarray:
        """Returns scaled logits, float64 (count, classes)."""
        return np.asarray(logits, "float64") * self.scale + self.offset


def fit_temperature(
    logits: Any, labels: Any, *, deviation: float | None = None
) -> float:
    """Returns the T with the smallest negative log-likelihood of softmax(logits / T).

    The predicted class does not change. T is in [0.01, 100]: the first for a model
    that makes no error on the images. Of few images, `deviation` keeps T near 1.

    Args:
        logits: Array (count, classes), with two classes or more, of images that were
            not trained on.
        labels: Class indices (count,).
        deviation: Standard deviation of log T, of a normal prior about T = 1; None: the
            maximum likelihood.

    Raises:
        ArgumentError: A logit is not finite, or a label is no class.

    Reference: Guo et al. 2017, arXiv 1706.04599, section 4.2.
    """
    logits, labels = _of_one_label(logits, labels)
    prior = _prior(deviation, len(logits))

    def loss(inverse: float) -> tuple[float, float]:
        logs = log_probabilities(inverse * logits)
        rows = np.arange(len(logits))
        slopes = np.exp(logs)
        slopes[rows, labels] -= 1
        return -logs[rows, labels].mean(), (slopes * logits).sum(axis=1).mean()

    return _temperature(loss, prior)


def fit_vector_scaling(logits: Any, labels: Any) -> VectorScaling:
    """Returns the scaling of each logit with the smallest negative log-likelihood.

    It has two numbers per class and can change the predicted class. Factors are in
    [0.01, 100], offsets in [-100, 100].

    Args:
        logits, labels: As for `fit_temperature`; some images of each class.

    Raises:
        ArgumentError: As for `fit_temperature`.

    Reference: Guo et al. 2017, arXiv 1706.04599, section 4.2.
    """
    from scipy import optimize

    logits, labels = _of_one_label(logits, labels)
    count, classes = logits.shape
    right = np.zeros_like(logits)
    right[np.arange(count), labels] = 1

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        logs = log_probabilities(logits * values[:classes] + values[classes:])
        slopes = (np.exp(logs) - right) / count
        found = [(slopes * logits).sum(axis=0), slopes.sum(axis=0)]
        return -(logs * right).sum() / count, np.concatenate(found)

    bounds = [(1 / _LARGEST, _LARGEST)] * classes + [(-_LARGEST, _LARGEST)] * classes
    start = np.repeat([1.0, 0.0], classes)
    best = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return VectorScaling(best.x[:classes], best.x[classes:])


def fit_label_temperatures(
    logits: Any, labels: Any, *, deviation: float | None = None
) -> np.ndarray:
    """Returns for each class the T with the smallest loss of sigmoid(logit / T).

    The loss is the binary cross-entropy. T is in [0.01, 100], and 1 for a class that
    no image has, or all have: it cannot be fitted.

    Args:
        logits: Array (count, classes) of images that were not trained on.
        labels: Whether each image has each class, (count, classes) of 0 and 1.
        deviation: As for `fit_temperature`.

    Returns:
        Temperatures, float64 (classes,).

    Raises:
        ArgumentError: A logit is not finite, or the labels have another shape.
    """
    logits = np.asarray(matrix("logits", logits), "float64")
    labels = label_table("labels", labels, logits.shape)
    found, prior = np.ones(logits.shape[1]), _prior(deviation, len(logits))
    for i, (each, has) in enumerate(zip(logits.T, labels.T, strict=True)):
        if has.all() or not has.any():
            continue
        signs = np.where(has, 1.0, -1.0) * each

        def loss(inverse: float, signs: np.ndarray = signs) -> tuple[float, float]:
            lost = np.logaddexp(0, -inverse * signs)
            return lost.mean(), (-signs * -np.expm1(-lost)).mean()

        found[i] = _temperature(loss, prior)
    return found


def fit_label_scaling(
    logits: Any, labels: Any, *, deviation: float | None = None
) -> VectorScaling:
    """Returns for each class the scaling with the smallest loss of its sigmoid.

    The loss is the binary cross-entropy. Unlike a temperature, an offset corrects
    outputs that are too high for all images, as those of the asymmetric loss. Factors
    are in [0.01, 100], offsets in [-100, 100]; 1 and 0 for a class that no image has,
    or all have.

    Args:
        logits, labels: As for `fit_label_temperatures`.
        deviation: Standard deviation of the logarithm of a factor, and half of that of
            an offset, of normal priors about 1 and 0; None: the maximum likelihood.

    Raises:
        ArgumentError: As for `fit_label_temperatures`.

    Reference: Platt 1999, Probabilistic outputs for support vector machines.
    """
    from scipy import optimize

    logits = np.asarray(matrix("logits", logits), "float64")
    labels = label_table("labels", labels, logits.shape)
    prior, classes = _prior(deviation, len(logits)), logits.shape[1]
    found = VectorScaling(np.ones(classes), np.zeros(classes))
    bounds = [(-np.log(_LARGEST), np.log(_LARGEST)), (-_LARGEST, _LARGEST)]
    for i, (each, has) in enumerate(zip(logits.T, labels.T, strict=True)):
        if has.all() or not has.any():
            continue
        signs = np.where(has, 1.0, -1.0)

        def loss(
            values: np.ndarray, x: np.ndarray = each, signs: np.ndarray = signs
        ) -> tuple[float, np.ndarray]:
            log, offset = values
            lost = np.logaddexp(0, -signs * (np.exp(log) * x + offset))
            slopes = signs * np.expm1(-lost)  # of the loss by the scaled logit
            by_log = (slopes * np.exp(log) * x).mean() + 2 * prior * log
            by_offset = slopes.mean() + prior * offset / 2
            total = lost.mean() + prior * (log**2 + offset**2 / 4)
            return total, np.array([by_log, by_offset])

        best = optimize.minimize(loss, np.zeros(2), jac=True, bounds=bounds)
        found.scale[i], found.offset[i] = np.exp(best.x[0]), best.x[1]
    return found


def brier_score(probabilities: Any, labels: Any) -> np.ndarray:
    """Returns Σ (p - y)² over the classes for each image, in [0, 2], float64 (count,).

    Args:
        probabilities: Array (count, classes).
        labels: Class indices (count,); or (count, classes) of 0 and 1 for several
            labels per image, for which it is the mean over the classes, in [0, 1].

    Raises:
        ArgumentError: The shapes do not fit, or a value is out of its range.

    Reference: Brier 1950, Mon. Weather Rev. 78, equation 2.
    """
    found = np.asarray(matrix("probabilities", probabilities), "float64")
    if found.min() < 0 or found.max() > 1:
        raise ArgumentError(
            "`probabilities` must be in [0, 1]. Received: from "
            f"{found.min():g} to {found.max():g}. Apply the softmax or the sigmoid to "
            "logits.",
            "probabilities",
        )
    if np.ndim(labels) == 2:
        return ((found - label_table("labels", labels, found.shape)) ** 2).mean(axis=1)
    right = np.zeros_like(found)
    classes = class_labels("labels", labels, *found.shape)
    right[np.arange(len(found)), classes] = 1
    return ((found - right) ** 2).sum(axis=1)


def _of_one_label(logits: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns checked logits, float64, and class indices."""
    logits = np.asarray(matrix("logits", logits), "float64")
    if logits.shape[1] == 1:
        raise ArgumentError(
            "`logits` must have two classes or more. Received: one. For the logit of a "
            "sigmoid, see `fit_label_temperatures`.",
            "logits",
        )
    return logits, class_labels("labels", labels, *logits.shape)


def _prior(deviation: float | None, count: int) -> float:
    """Returns the factor of (log T)² in the mean loss of images."""
    if deviation is None:
        return 0.0
    number("deviation", deviation, positive=True)
    return 1 / (2 * count * deviation**2)


def _temperature(
    loss: Callable[[float], tuple[float, float]], prior: float = 0.0
) -> float:
    """Returns the temperature with the smallest loss + prior · (log T)².

    Args:
        loss: Function of 1 / T that returns a convex loss and its derivative.
        prior: ≥ 0.
    """
    from scipy import optimize

    low, high = 1 / _LARGEST, _LARGEST
    if prior:
        ends = np.log(low), np.log(high)
        found = optimize.minimize_scalar(
            lambda log: loss(np.exp(log))[0] + prior * log**2,
            bounds=ends,
            method="bounded",
            options={"xatol": 1e-8},
        )
        return float(np.exp(-found.x))
    if loss(low)[1] >= 0:
        return _LARGEST
    if loss(high)[1] <= 0:
        return 1 / _LARGEST
    return 1 / optimize.brentq(lambda inverse: loss(inverse)[1], low, high)
