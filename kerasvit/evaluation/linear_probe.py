"""Multinomial logistic regression on frozen features."""

import warnings
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer

from .arrays import check_widths, class_labels, matrix

STRENGTHS = tuple(10.0 ** np.arange(-4, 3))  # C of scikit-learn, inverse of the penalty


def linear_probe(
    train_features: Any,
    train_labels: Any,
    validation_features: Any,
    validation_labels: Any,
    classes: int,
) -> tuple[np.ndarray, np.ndarray]:
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
    integer("classes", classes, 2)
    train = matrix("train_features", train_features)
    held = matrix("validation_features", validation_features)
    check_widths(train, held)
    labels = class_labels("train_labels", train_labels, len(train), classes)
    held_labels = class_labels(
        "validation_labels", validation_labels, len(held), classes
    )
    features = np.concatenate([train, held])
    all_labels = np.concatenate([labels, held_labels])
    if len(np.unique(all_labels)) < 2:
        raise ArgumentError(
            "The images must be of two classes at least. Received: only class "
            f"{all_labels[0]}.",
            "train_labels",
            "validation_labels",
        )
    mean, scale = features.mean(0), features.std(0) + 1e-6
    strength = _best_strength(
        (train - mean) / scale, labels, (held - mean) / scale, held_labels
    )
    regression = _fitted(strength, (features - mean) / scale, all_labels)
    coefficients, intercepts = regression.coef_, regression.intercept_
    if len(regression.classes_) == 2:  # one row, of the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel = np.zeros((features.shape[1], classes), "float32")
    kernel[:, regression.classes_] = (coefficients / scale).T
    # Logits of the other classes sum to 0, so that one of them is larger than this.
    bias = np.full(classes, intercepts.min() - 10, "float32")
    bias[regression.classes_] = intercepts - coefficients @ (mean / scale)
    return kernel, bias


def _best_strength(
    train: np.ndarray, labels: np.ndarray, held: np.ndarray, held_labels: np.ndarray
) -> float:
    known = np.unique(labels)
    use = np.isin(held_labels, known)
    if len(known) < 2 or not use.any():
        return 1.0
    columns = np.searchsorted(known, held_labels[use])
    # Cross-entropy, and not accuracy: it differs also where few images decide, and a
    # head with too large logits damages the weights below it when it is trained on.
    losses = []
    for strength in STRENGTHS:
        regression = _fitted(strength, train, labels)
        with np.errstate(divide="ignore"):  # a probability of 0
            logs = regression.predict_log_proba(held[use])
        losses.append(-np.mean(logs[np.arange(len(columns)), columns]))
    return STRENGTHS[int(np.argmin(losses))]


def _fitted(strength: float, features: np.ndarray, labels: np.ndarray) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=strength, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        # A fit with a weak penalty may not converge; its cross-entropy is still used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regression.fit(features, labels)
