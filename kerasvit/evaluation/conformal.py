"""Conformal prediction: sets of classes that contain the right one at a stated rate."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from kerasvit.arguments import ArgumentError, integer, number, one_of

from .arrays import class_labels, matrix, share
from .metrics import log_probabilities

METHODS = ("threshold", "aps", "raps")


@dataclasses.dataclass(frozen=True)
class ConformalSets:
    """A rule that returns a set of classes for each image.

    The sets of new images contain the right class at least at the rate `coverage`, on
    average over images, if these are drawn as those that gave the quantile.

    Attributes:
        method: "threshold", "aps" or "raps".
        coverage: Share of the images whose set has the right class, in (0, 1).
        quantile: Largest score of a class in a set.
        penalty, rank: Those of `fit_conformal`, for "raps".
    """

    method: str
    coverage: float
    quantile: float
    penalty: float = 0.0
    rank: int = 0

    def __call__(self, logits: Any) -> np.ndarray:
        """Returns whether each class is in the set of each image.

        A set is never empty: it has the most probable class, which can only raise the
        coverage.

        Args:
            logits: Array (count, classes), scaled as for `fit_conformal`.

        Returns:
            Booleans (count, classes).
        """
        logits = _logits(logits)
        found = _scores(logits, self.method, self.penalty, self.rank) <= self.quantile
        found[np.arange(len(logits)), logits.argmax(axis=1)] = True
        return found


def fit_conformal(
    logits: Any,
    labels: Any,
    coverage: float = 0.9,
    method: Literal["threshold", "aps", "raps"] = "raps",
    *,
    penalty: float = 0.1,
    rank: int = 1,
) -> ConformalSets:
    """Returns the rule of conformal sets with a coverage.

    The score of a class is, for the probabilities p in descending order and its place
    k from 1:

    - "threshold": 1 - p_k (Sadinle et al. 2019, arXiv 1609.00451). The sets are the
      smallest on average.
    - "aps": p_1 + ... + p_k (Romano et al. 2020, arXiv 2006.02544, without random
      numbers: the same image has the same set, and the sets are a little larger).
      Hard images have larger sets.
    - "raps": the same + penalty · max(0, k - rank) (Angelopoulos et al. 2021, arXiv
      2009.14193). Its sets are smaller if there are many classes.

    The quantile is the ⌈(count + 1) · coverage⌉-th smallest score of the right class.

    Args:
        logits: Array (count, classes) of images that neither the model, its epoch nor
            its temperature was chosen with, scaled by the temperature.
        labels: Class indices (count,).
        coverage: In (0, 1).
        method: The score.
        penalty: For "raps", ≥ 0.
        rank: For "raps": places that are not penalised, ≥ 0.

    Raises:
        ArgumentError: There are fewer than 1 / (1 - coverage) images, or an argument is
            out of its range.
    """
    scores = scores_of(logits, labels, method, penalty, rank)
    return of_scores(scores, coverage, method, penalty, rank)


def scores_of(
    logits: Any, labels: Any, method: str, penalty: float, rank: int
) -> np.ndarray:
    """Returns the score of the right class of each image, float64 (count,).

    Args: as for `fit_conformal`.
    """
    logits = _logits(logits)
    labels = class_labels("labels", labels, *logits.shape)
    one_of("method", method, METHODS)
    number("penalty", penalty, 0)
    integer("rank", rank, 0)
    return _scores(logits, method, penalty, rank)[np.arange(len(logits)), labels]


def of_scores(
    scores: Any, coverage: float, method: str, penalty: float, rank: int
) -> ConformalSets:
    """Returns the rule with a coverage, by the result of `scores_of`."""
    share("coverage", coverage)
    count = len(scores)
    needed = math.ceil(1 / (1 - coverage) - 1e-9)
    if count < needed:
        raise ArgumentError(
            f"A coverage of {coverage:g} needs at least {needed} images. Received: "
            f"{count}. Give more images, or a smaller coverage.",
            *("logits", "coverage"),
        )
    place = min(count, math.ceil((count + 1) * coverage - 1e-9))
    quantile = float(np.sort(scores)[place - 1])
    given = (penalty, rank) if method == "raps" else (0.0, 0)
    return ConformalSets(method, coverage, quantile, *given)


def _logits(logits: Any) -> np.ndarray:
    logits = np.asarray(matrix("logits", logits), "float64")
    if logits.shape[1] == 1:
        raise ArgumentError(
            "`logits` must have two classes or more. Received: one.", "logits"
        )
    return logits


def _scores(logits: np.ndarray, method: str, penalty: float, rank: int) -> np.ndarray:
    """Returns the score of each class, float64 (count, classes)."""
    probabilities = np.exp(log_probabilities(logits))
    if method == "threshold":
        return 1 - probabilities
    penalty = penalty if method == "raps" else 0.0
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sums = np.take_along_axis(probabilities, order, axis=1).cumsum(axis=1)
    places = np.arange(1, logits.shape[1] + 1)
    sums += penalty * np.maximum(0, places - rank)
    found = np.empty_like(sums)
    np.put_along_axis(found, order, sums, axis=1)
    return found
