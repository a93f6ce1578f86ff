"""Few-shot accuracy of frozen features, by least squares."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer, number

from .arrays import check_widths, class_labels, matrix

L2 = 2.0**10
BIAS_CONSTANT = 100.0  # so large that the penalty hardly acts on the bias


def least_squares(
    features: Any, labels: Any, classes: int, *, l2: float = L2
) -> tuple[np.ndarray, np.ndarray]:
    """Fits targets ±1 to standardised features, with an L2 penalty.

    w = (XᵀX + l2 I)⁻¹ XᵀY with X = [(x − mean) / (std + 1e-5), 100], or, for fewer
    images than columns of X, its equal Xᵀ (XXᵀ + l2 I)⁻¹ Y. Mean and standard deviation
    are those of `features`.

    The definition is that of google-research/big_vision, evaluators/fewshot_lsr.py,
    which computes in float32 with an eigendecomposition; here it is solved in float64.
    With 25 to 1,000 images of 64 to 384 random features, the logits of that code differ
    by at most 5e-13 if it computes in float64. In float32 they differ by at most 1e-5
    in the second form, and by 9e-4 in the first: the constant has the eigenvalue 1e7.

    Args:
        features: Array (count, width).
        labels: Array (count,) of class indices in [0, classes).
        classes: Number of classes, ≥ 2.
        l2: Strength of the penalty, > 0.

    Returns:
        Kernel (width, classes) and bias (classes,) for features as they are, in
        float64: the prediction is the argmax of `features @ kernel + bias`.

    Raises:
        ArgumentError: A shape or a label does not fit, or a feature is NaN or infinite.
    """
    features = matrix("features", features).astype("float64")
    labels = class_labels(
        "labels", labels, len(features), integer("classes", classes, 2)
    )
    number("l2", l2, positive=True)
    mean, scale = features.mean(0), features.std(0) + 1e-5
    x = (features - mean) / scale
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=BIAS_CONSTANT)
    y = 2 * np.eye(classes)[labels] - 1
    if len(x) < x.shape[1]:
        weights = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(len(x)), y)
    else:
        weights = np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1]), x.T @ y)
    kernel = weights[:-1] / scale[:, None]
    return kernel, BIAS_CONSTANT * weights[-1] - mean @ kernel


def shots_of_classes(labels: Any, classes: int, shots: int, seed: int) -> np.ndarray:
    """Chooses images of each class at random.

    These are the images that the code of big_vision chooses from the same labels: one
    generator of NumPy permutes the images of one class after the other. Fewer shots are
    the first ones of more. That code takes fewer of a class that has too few; here,
    this is an error.

    Args:
        labels: Array (count,) of class indices in [0, classes).
        classes: Number of classes.
        shots: Number of images per class, ≥ 1.
        seed: Seed of the choice.

    Returns:
        Array (classes · shots,) of indices into `labels`, in the order of the classes.

    Raises:
        ArgumentError: A class has fewer images.
    """
    integer("shots", shots, 1)
    labels = class_labels("labels", labels, len(labels), classes)
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < shots:
        few = int(np.argmin(counts))
        raise ArgumentError(
            f"Each class must have {shots} images, as many as `shots`. Received: "
            f"{counts[few]} of class {few}; {np.sum(counts < shots)} of {classes} "
            "classes have too few. Use more training images or fewer shots.",
            "shots",
            "labels",
        )
    generator = np.random.default_rng(seed)
    return np.concatenate(
        [
            generator.permutation(np.flatnonzero(labels == each))[:shots]
            for each in range(classes)
        ]
    )


def few_shot_hits(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    test_labels: Any,
    classes: int,
    *,
    shots: Sequence[int] = (1, 5, 10, 25),
    seeds: Sequence[int] = (0, 1, 2),
) -> dict[int, np.ndarray]:
    """Returns which test images `least_squares`, fitted to a few shots, predicts.

    Shots, seeds and penalty are those of google-research/big_vision,
    configs/common_fewshot.py (ViT, arXiv 2010.11929, section 4).

    Args:
        train_features: Array (training images, width).
        train_labels: Array (training images,) of class indices in [0, classes).
        test_features: Array (test images, width).
        test_labels: Array (test images,).
        classes: Number of classes, ≥ 2.
        shots: Numbers of training images per class.
        seeds: Seeds of the choice of shots.

    Returns:
        Whether each test image is right, booleans (seeds, test images), by number of
        shots.

    Raises:
        ArgumentError: A shape or a label does not fit, a feature is NaN or infinite,
            or a class has fewer images than shots.
    """
    integer("classes", classes, 2)
    train_features = matrix("train_features", train_features)
    test_features = matrix("test_features", test_features)
    check_widths(train_features, test_features)
    train_labels = class_labels(
        "train_labels", train_labels, len(train_features), classes
    )
    test_labels = class_labels("test_labels", test_labels, len(test_features), classes)

    def hits(count: int, seed: int) -> np.ndarray:
        chosen = shots_of_classes(train_labels, classes, count, seed)
        kernel, bias = least_squares(
            train_features[chosen], train_labels[chosen], classes
        )
        return np.asarray((test_features @ kernel + bias).argmax(1) == test_labels)

    return {k: np.stack([hits(k, seed) for seed in seeds]) for k in shots}


def few_shot_accuracy(
    *features_and_labels: Any, **options: Any
) -> dict[int, list[float]]:
    """Returns the accuracy of each seed on the test images, by number of shots.

    Args:
        features_and_labels, options: As for `few_shot_hits`.

    Returns:
        {shots: accuracies in [0, 1]}.

    Raises:
        ArgumentError: As for `few_shot_hits`.
    """
    hits = few_shot_hits(*features_and_labels, **options)
    return {shots: each.mean(1).tolist() for shots, each in hits.items()}
