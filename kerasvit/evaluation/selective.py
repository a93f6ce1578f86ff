"""Selective prediction: a model that may abstain from images that it is unsure of."""

from typing import Any, NamedTuple

import numpy as np

from kerasvit.arguments import ArgumentError

from .arrays import share


class RiskCoverage(NamedTuple):
    """The errors of a model that answers a share of the images.

    Attributes:
        coverage: Shares that are answered, the most confident first, (count,): k/count.
        risk: Share of errors among them, (count,).
    """

    coverage: np.ndarray
    risk: np.ndarray

    @property
    def area(self) -> float:
        """The mean risk over all coverages, AURC.

        It is the integral by the trapezoidal rule from coverage 1 / count to 1, divided
        by its length, as in torch-uncertainty. The mean of `risk`, as in Geifman et
        al., differs by at most 1 / count.
        """
        if len(self.risk) == 1:
            return float(self.risk[0])
        return float((self.risk[:-1] + self.risk[1:]).mean() / 2)

    def coverage_at(self, risk: float) -> float:
        """Returns the largest share that can be answered with at most this risk.

        Args:
            risk: In [0, 1].

        Returns:
            0 if no share has so few errors.
        """
        share("risk", risk, ends=True)
        fits = np.flatnonzero(self.risk <= risk)
        return float(self.coverage[fits[-1]]) if len(fits) else 0.0


def risk_coverage(confidences: Any, hits: Any) -> RiskCoverage:
    """Returns the risk of a model at each coverage.

    Images of equal confidence have the same place: in their stead stands the mean over
    all their orders.

    Args:
        confidences: Any number that is larger if the model is surer, (count,), such as
            the probability of the predicted class.
        hits: Whether the prediction is right, (count,).

    Raises:
        ArgumentError: The arrays are empty, not finite, or have different shapes.

    Reference: Geifman and El-Yaniv 2017, arXiv 1705.08500, equations 2 and 3; the area
    as in torch_uncertainty/metrics/classification/risk_coverage.py.
    """
    confidences = np.asarray(confidences, "float64")
    hits = np.asarray(hits, "float64")
    if confidences.shape != hits.shape or hits.ndim != 1 or not hits.size:
        raise ArgumentError(
            "`confidences` and `hits` must have one entry for each image. Received: "
            f"shapes {confidences.shape} and {hits.shape}.",
            *("confidences", "hits"),
        )
    if not np.isfinite(confidences).all():
        raise ArgumentError("`confidences` must be finite.", "confidences")
    _, places, counts = np.unique(-confidences, return_inverse=True, return_counts=True)
    errors = np.bincount(places, 1 - hits) / counts
    sums = np.repeat(errors, counts).cumsum()
    answered = np.arange(1, len(hits) + 1)
    return RiskCoverage(answered / len(hits), sums / answered)
