"""Multinomial logistic regression on frozen features."""

import math
import warnings
from typing import Any, TypeAlias

import numpy as np

from kerasvit.arguments import ArgumentError, integer

from .arrays import check_widths, class_labels, label_table, matrix

STRENGTHS = tuple(10.0 ** np.arange(-4, 3))  # C of scikit-learn, inverse of the penalty

Head: TypeAlias = tuple[np.ndarray, np.ndarray]  # kernel (width, classes), bias


def linear_probe(
    train_features: Any,
    train_labels: Any,
    validation_features: Any,
    validation_labels: Any,
    classes: int,
) -> Head:
    """Fits logistic regression, with the L2 penalty that suits the validation images.

    The strength is that of `STRENGTHS` with the smallest cross-entropy on the
    validation images, whose classes without a training image are left out; without any
    image to compare it is 1. The fit that is returned is to training and validation
    images together, as by Radford et al. 2021 (arXiv 2103.00020, appendix A.3).
    Features are standardised for the fits. It needs scikit-learn.

    Args:
        train_features: Array (training images, width).
        train_labels: Array (training images,) of class indices in [0, classes).
        validation_features: Array (validation images, width).
        validation_labels: Array (validation images,).
        classes: Number of classes, ≥ 2; a class without images is never predicted.

    Returns:
        Kernel (width, classes) and bias (classes,) for features as they are, in
        float32: the prediction is the argmax of `features @ kernel + bias`.

    Raises:
        ArgumentError: A shape or a label does not fit, a feature is NaN or infinite, or
            all images are of one class.
        ImportError: scikit-learn is not installed.
    """
    train = train_features, train_labels, None
    validation = validation_features, validation_labels, None
    return probes(train, validation, classes)[0]


def probes(train: tuple, validation: tuple, classes: int) -> tuple[Head, Head | None]:
    """Returns the `linear_probe`, and the fit to the training images alone.

    The second has the same penalty, and was not fitted to the validation images, so
    that its accuracy on them can be given. It is None if the training images are of one
    class.

    Args:
        train: Features, labels, and weights of the images, (count,) and > 0, or None.
        validation: Likewise.
        classes: As for `linear_probe`, which has the errors, too.
    """
    integer("classes", classes, 2)
    known = matrix("train_features", train[0])
    held = matrix("validation_features", validation[0])
    check_widths(known, held)
    labels = class_labels("train_labels", train[1], len(known), classes)
    held_labels = class_labels("validation_labels", validation[1], len(held), classes)
    features = np.concatenate([known, held])
    all_labels = np.concatenate([labels, held_labels])
    if len(np.unique(all_labels)) < 2:
        raise ArgumentError(
            "The images must be of two classes at least. Received: only class "
            f"{all_labels[0]}.",
            "train_labels",
            "validation_labels",
        )
    weights, held_weights = train[2], validation[2]
    all_weights = None if weights is None else np.concatenate([weights, held_weights])
    mean, scale = features.mean(0), features.std(0) + 1e-6
    strength, alone = _best_strength(
        ((known - mean) / scale, labels, weights),
        ((held - mean) / scale, held_labels, held_weights),
    )
    regression = _fitted(strength, (features - mean) / scale, all_labels, all_weights)
    whole = _head(regression, mean, scale, classes)
    return whole, alone and _head(alone, mean, scale, classes)


def label_probe(
    train_features: Any,
    train_labels: Any,
    validation_features: Any,
    validation_labels: Any,
) -> Head:
    """Fits a logistic regression for each class of images with several labels, or none.

    Each has the penalty that suits it, as in `linear_probe`. A class that no image has,
    or all have, gets its frequency as bias and zeros as kernel. It needs scikit-learn.

    Args:
        train_features: Array (training images, width).
        train_labels: Whether each image has each class, (training images, classes) of 0
            and 1.
        validation_features, validation_labels: Likewise.

    Returns:
        Kernel (width, classes) and bias (classes,) for features as they are, in
        float32: the sigmoid of `features @ kernel + bias` has the probabilities.

    Raises:
        ArgumentError: A shape or a label does not fit, or a feature is NaN or infinite.
    """
    train = train_features, train_labels, None
    validation = validation_features, validation_labels, None
    return label_probes(train, validation)[0]


def label_probes(train: tuple, validation: tuple) -> tuple[Head, Head]:
    """Returns the `label_probe`, and the fit to the training images alone.

    Args:
        train, validation: As for `probes`, with labels (count, classes) of 0 and 1.
    """
    known = matrix("train_features", train[0])
    held = matrix("validation_features", validation[0])
    check_widths(known, held)
    shape = len(known), np.shape(train[1])[-1]
    labels = label_table("train_labels", train[1], shape)
    shape = len(held), shape[1]
    held_labels = label_table("validation_labels", validation[1], shape)
    columns: list[list] = [[], []]
    for each, other in zip(labels.T, held_labels.T, strict=True):
        both = np.concatenate([each, other])
        found: tuple = (None, None)
        if both.any() and not both.all():
            of_train = known, each.astype(int), train[2]
            found = probes(of_train, (held, other.astype(int), validation[2]), 2)
        for place, (head, of) in enumerate(zip(found, (both, each), strict=True)):
            columns[place].append(_sigmoid_head(head, of, known.shape[1]))
    whole, alone = (
        (
            np.stack([kernel for kernel, _ in heads], axis=1).astype("float32"),
            np.array([bias for _, bias in heads], "float32"),
        )
        for heads in columns
    )
    return whole, alone


def _sigmoid_head(
    head: Head | None, labels: np.ndarray, width: int
) -> tuple[np.ndarray, float]:
    """Returns kernel and bias of one logit; of no head the frequency of the label."""
    if head is None:
        present = labels.sum()
        odds = (present + 0.5) / (len(labels) - present + 0.5)
        return np.zeros(width), math.log(odds)
    kernel, bias = head
    return kernel[:, 1] - kernel[:, 0], float(bias[1] - bias[0])


def quarter(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Divides images at random, to choose the penalty where no other images are given.

    Args:
        count: Number of images, ≥ 2.
        seed: Seed of the division.

    Returns:
        Indices of three quarters, to train on, and of one, rounded up, for validation.
    """
    order = np.random.default_rng(seed).permutation(integer("count", count, 2))
    held, rest = np.split(order, [math.ceil(count / 4)])
    return rest, held


def _head(regression: Any, mean: np.ndarray, scale: np.ndarray, classes: int) -> Head:
    """Returns kernel and bias for features that are not standardised."""
    coefficients, intercepts = regression.coef_, regression.intercept_
    if len(regression.classes_) == 2:  # one row, of the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel = np.zeros((len(mean), classes), "float32")
    kernel[:, regression.classes_] = (coefficients / scale).T
    # Logits of the other classes sum to 0, so that one of them is larger than this.
    bias = np.full(classes, intercepts.min() - 10, "float32")
    bias[regression.classes_] = intercepts - coefficients @ (mean / scale)
    return kernel, bias


def _best_strength(train: tuple, validation: tuple) -> tuple[float, Any]:
    """Returns the strength, and its fit to the training images if they allow one."""
    (features, labels, weights), (held, held_labels, held_weights) = train, validation
    known = np.unique(labels)
    if len(known) < 2:
        return 1.0, None
    use = np.isin(held_labels, known)
    if not use.any():
        return 1.0, _fitted(1.0, features, labels, weights)
    columns = np.searchsorted(known, held_labels[use])
    shares = None if held_weights is None else held_weights[use]
    # Cross-entropy, and not accuracy: it differs also where few images decide, and a
    # head with too large logits damages the weights below it when it is trained on.
    losses, fits = [], []
    for strength in STRENGTHS:
        fits.append(_fitted(strength, features, labels, weights))
        with np.errstate(divide="ignore"):  # a probability of 0
            logs = fits[-1].predict_log_proba(held[use])
        of_class = logs[np.arange(len(columns)), columns]
        losses.append(-np.average(of_class, weights=shares))
    best = int(np.argmin(losses))
    return STRENGTHS[best], fits[best]


def _fitted(
    strength: float,
    features: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=strength, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        # A fit with a weak penalty may not converge; its cross-entropy is still used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regression.fit(features, labels, sample_weight=weights)
