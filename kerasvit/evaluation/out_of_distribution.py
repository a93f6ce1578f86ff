"""Scores of images that are unlike those of the training; larger means less alike."""

from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer, number

from .arrays import check_widths, class_labels, matrix, share
from .metrics import log_probabilities

_SIMILARITIES = 2**25  # in memory at a time


def softmax_score(logits: Any) -> np.ndarray:
    """Returns 1 - the largest probability, in [0, 1), float64 (count,).

    Args:
        logits: Array (count, classes).

    Reference: Hendrycks and Gimpel 2017, arXiv 1610.02136.
    """
    logits = matrix("logits", logits)
    return -np.expm1(log_probabilities(logits).max(axis=1))


def energy_score(logits: Any, temperature: float = 1.0) -> np.ndarray:
    """Returns -T log Σ exp(logit / T), float64 (count,).

    Args:
        logits: Array (count, classes).
        temperature: T > 0.

    Reference: Liu et al. 2020, arXiv 2010.03759, equation 4.
    """
    number("temperature", temperature, positive=True)
    logits = np.asarray(matrix("logits", logits), "float64") / temperature
    largest = logits.max(axis=1)
    sums = np.exp(logits - largest[:, None]).sum(axis=1)
    return -temperature * (largest + np.log(sums))


def joint_energy_score(logits: Any) -> np.ndarray:
    """Returns -Σ log(1 + exp(logit)) of several labels per image, float64 (count,).

    Args:
        logits: Array (count, classes), of sigmoids.

    Reference: Wang et al. 2021, arXiv 2109.14162 (JointEnergy), equation 4.
    """
    logits = np.asarray(matrix("logits", logits), "float64")
    return -np.logaddexp(0, logits).sum(axis=1)


def neighbor_score(train_features: Any, features: Any, k: int = 50) -> np.ndarray:
    """Returns the distance to the k-th nearest training image, float64 (count,).

    The distance is Euclidean, of features of length 1; that of zeros stays zero.

    Args:
        train_features: Array (training images, width).
        features: Array (count, width).
        k: In [1, training images].

    Reference: Sun et al. 2022, arXiv 2204.06507, section 3.
    """
    train = _normalized(matrix("train_features", train_features))
    test = _normalized(matrix("features", features))
    check_widths(train, test)
    integer("k", k, 1, len(train), meaning="at most the number of training images")
    found = np.empty(len(test))
    rows = max(1, _SIMILARITIES // len(train))
    for start in range(0, len(test), rows):
        part = slice(start, start + rows)
        squares = (test[part] ** 2).sum(axis=1)[:, None] + (train**2).sum(axis=1)
        squares -= 2 * test[part] @ train.T
        found[part] = np.partition(squares, k - 1, axis=1)[:, k - 1]
    return np.sqrt(np.maximum(found, 0))


def mahalanobis_score(
    train_features: Any, train_labels: Any, features: Any, classes: int
) -> np.ndarray:
    """Returns the squared Mahalanobis distance to the nearest class, float64 (count,).

    All classes have the covariance of the training images about their class means.
    Directions in which these do not differ are left out: the inverse is the
    pseudo-inverse.

    Args:
        train_features: Array (training images, width).
        train_labels: Class indices (training images,).
        features: Array (count, width).
        classes: Number of classes, ≥ 1; those without images have no distance.

    Reference: Lee et al. 2018, arXiv 1807.03888, equations 1 and 2.
    """
    integer("classes", classes, 1)
    train = np.asarray(matrix("train_features", train_features), "float64")
    test = np.asarray(matrix("features", features), "float64")
    check_widths(train, test)
    labels = class_labels("train_labels", train_labels, len(train), classes)
    present = np.unique(labels)
    means = np.stack([train[labels == each].mean(axis=0) for each in present])
    centered = train - means[np.searchsorted(present, labels)]
    inverse = np.linalg.pinv(centered.T @ centered / len(train), hermitian=True)
    distances = np.empty((len(test), len(present)))
    for i, mean in enumerate(means):
        apart = test - mean
        distances[:, i] = ((apart @ inverse) * apart).sum(axis=1)
    return distances.min(axis=1)


def detection_auroc(scores: Any, other_scores: Any) -> float:
    """Returns how often an unlike image has the larger score of two, in [0, 1].

    It is the area under the ROC curve; equal scores count half.

    Args:
        scores: Of images like those of the training, (count,).
        other_scores: Of other images, (others,).
    """
    from sklearn.metrics import roc_auc_score

    scores, others = _finite(scores), _finite(other_scores)
    unlike = np.repeat([0, 1], [len(scores), len(others)])
    return float(roc_auc_score(unlike, np.concatenate([scores, others])))


def detection_fpr(scores: Any, other_scores: Any, recall: float = 0.95) -> float:
    """Returns the share of unlike images that pass if `recall` of the others do.

    With the default it is the FPR95, in [0, 1]: the threshold is the smallest score
    that at least this share of `scores` does not exceed.

    Args:
        scores, other_scores: As for `detection_auroc`.
        recall: Share of the images like those of the training, in (0, 1].

    Reference: Liang et al. 2018, arXiv 1706.02690, section 4.
    """
    share("recall", recall, ends=True)
    scores, others = np.sort(_finite(scores)), _finite(other_scores)
    place = int(np.ceil(recall * len(scores) - 1e-9)) - 1
    return float((others <= scores[place]).mean())


def _finite(scores: Any) -> np.ndarray:
    scores = np.asarray(scores, "float64")
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise ArgumentError(
            "Scores must be finite numbers, one for each image, (count,). Received: "
            f"shape {scores.shape}."
        )
    return scores


def _normalized(features: np.ndarray) -> np.ndarray:
    features = np.asarray(features, "float64")
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, 1e-12)
