"""Accuracy on corrupted images: means, mCE and relative mCE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerasvit.arguments import ArgumentError, number_of_each

SEVERITIES = 5


@dataclass(frozen=True)
class Reference:
    """The model whose errors are 1.

    Args:
        name: Name of the model.
        clean: Its error on the images without corruption, in (0, 1).
        errors: Its mean error over the severities 1 to 5, in (0, 1], by corruption.
    """

    name: str
    clean: float
    errors: Mapping[str, float]


#: The errors of AlexNet, by which the mean corruption error divides.
ALEXNET = Reference(
    name="AlexNet",
    # torchvision's weights, with which hendrycks/robustness ImageNet-C/test.py begins:
    # top-1 56.522 in torchvision/models/alexnet.py.
    clean=1 - 0.56522,
    # The authors' numbers as in google-research/augmix, imagenet.py.
    errors={
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    },
)


def mean_accuracy(accuracies: Mapping[str, Sequence[float]]) -> float:
    """Returns the mean over corruptions of the mean over severities.

    Args:
        accuracies: Accuracy in [0, 1] of each severity, by corruption. All corruptions
            must have as many severities.

    Raises:
        ArgumentError: There are no accuracies, they are out of their range, or the
            corruptions have several numbers of severities.
    """
    lengths = {len(values) for values in accuracies.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ArgumentError(
            "`accuracies` must have the same severities for all corruptions, at least "
            f"one. Received: { ({c: len(v) for c, v in accuracies.items()}) }.",
            "accuracies",
        )
    for corruption, values in accuracies.items():
        for value in values:
            if not 0 <= value <= 1:
                raise ArgumentError(
                    "`accuracies` must be in [0, 1]. Received: "
                    f"{value!r} for {corruption}.",
                    "accuracies",
                )
    return float(np.mean([np.mean(values) for values in accuracies.values()]))


def mean_corruption_error(
    accuracies: Mapping[str, Sequence[float]], reference: Reference
) -> float:
    """Returns mCE: the mean over corruptions of Σ error / Σ error of the reference.

    Args:
        accuracies: Accuracy in [0, 1] of the severities 1 to 5, by corruption. The mean
            is that of these corruptions; published numbers have all 15 of `ALEXNET`.
        reference: Model of comparison; published numbers have `ALEXNET`.

    Returns:
        A ratio: 1 for the errors of the reference, which papers print as 100.

    Raises:
        ArgumentError: A corruption has other than five accuracies, or none of the
            reference, or an accuracy is out of its range.

    Reference: Hendrycks and Dietterich 2019, arXiv 1903.12261, section 4.1.
    """
    ours, theirs = _errors(accuracies, reference)
    return float(np.mean(ours / theirs))


def relative_mean_corruption_error(
    accuracies: Mapping[str, Sequence[float]], clean: float, reference: Reference
) -> float:
    """Returns relative mCE, where errors are those beyond the clean images' error.

    Args:
        accuracies: As in `mean_corruption_error`.
        clean: Accuracy of the model on the images without corruption, in [0, 1].
        reference: Model of comparison.

    Returns:
        A ratio: 1 for a loss of accuracy as large as that of the reference.

    Raises:
        ArgumentError: As `mean_corruption_error`, or `clean` is out of its range, or a
            corruption does not raise the error of the reference.

    Reference: Hendrycks and Dietterich 2019, arXiv 1903.12261, section 4.1.
    """
    (clean,) = number_of_each("clean", clean, 1, 0, 1)
    ours, theirs = _errors(accuracies, reference)
    if (theirs <= reference.clean).any():
        raise ArgumentError(
            f"Each corruption must raise the error of {reference.name} beyond "
            f"{reference.clean:.6g}, that of clean images. Received: "
            f"{dict(reference.errors)}.",
            "reference",
        )
    return float(np.mean((ours - (1 - clean)) / (theirs - reference.clean)))


def _errors(
    accuracies: Mapping[str, Sequence[float]], reference: Reference
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean errors over severities of the model and of the reference."""
    mean_accuracy(accuracies)  # checks
    for corruption, values in accuracies.items():
        if len(values) != SEVERITIES:
            raise ArgumentError(
                f"mCE needs the accuracies of {SEVERITIES} severities. Received: "
                f"{len(values)} of {corruption}.",
                "accuracies",
            )
    unknown = sorted(set(accuracies) - set(reference.errors))
    if unknown or any(reference.errors[c] <= 0 for c in accuracies):
        raise ArgumentError(
            f"mCE needs an error > 0 of {reference.name} for each corruption. It has "
            f"{sorted(reference.errors)}. Received also: {unknown}. Leave these out.",
            "accuracies",
            "reference",
        )
    ours = np.array([1 - np.mean(values) for values in accuracies.values()])
    return ours, np.array([reference.errors[each] for each in accuracies])
