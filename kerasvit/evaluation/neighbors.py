"""Weighted k-nearest-neighbour classification of frozen features."""

from typing import Any

import numpy as np

from kerasvit.arguments import integer, number

from .arrays import check_widths, class_labels, matrix

_SIMILARITIES = 2**25  # in memory at a time


def neighbor_votes(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    classes: int,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> np.ndarray:
    """Returns the votes of the k training images that are most similar to each image.

    A neighbour votes for its class with the weight exp(similarity / temperature). The
    similarity is the cosine; that with a feature of zeros is 0.

    Args:
        train_features: Array (training images, width).
        train_labels: Array (training images,) of class indices in [0, classes).
        test_features: Array (test images, width).
        classes: Number of classes, ≥ 2.
        k: Number of neighbours, in [1, training images].
        temperature: Scale of the similarities, ≥ 0.002: exponentials of more than 500
            do not fit into the votes.

    Returns:
        Array (test images, classes) in float64, for `top_k_hits`.

    Raises:
        ArgumentError: A shape or a label does not fit, a feature is NaN or infinite, or
            there are fewer than k training images.

    Reference: Caron et al. 2021, arXiv 2104.14294; facebookresearch/dino, eval_knn.py.
    """
    integer("classes", classes, 2)
    train = _normalized(matrix("train_features", train_features))
    test = _normalized(matrix("test_features", test_features))
    check_widths(train, test)
    labels = class_labels("train_labels", train_labels, len(train), classes)
    integer("k", k, 1, len(train), meaning="at most the number of training images")
    number("temperature", temperature, 0.002)
    votes = np.zeros((len(test), classes))
    rows = max(1, _SIMILARITIES // len(train))
    for start in range(0, len(test), rows):
        similarities = test[start : start + rows] @ train.T
        nearest = np.argpartition(similarities, -k, axis=1)[:, -k:]
        weights = np.take_along_axis(similarities, nearest, 1).astype("float64")
        images = np.arange(start, start + len(nearest))[:, None]
        np.add.at(votes, (images, labels[nearest]), np.exp(weights / temperature))
    return votes


def _normalized(features: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, 1e-12)
