"""Intervals of numbers that are computed from images, by resampling the images."""

from collections.abc import Callable

import numpy as np

from kerasvit.evaluation import Estimate

RESAMPLES = 200
NORMAL = 1.96  # deviations of an interval of 95 %


def resampled(
    statistic: Callable[..., dict[str, float]], *counts: int, low: float = 0.0
) -> dict:
    """Returns {name: `Estimate`} of numbers in [low, 1], with their 95 % intervals.

    An interval is the number ± 1.96 standard deviations of 200 samples. It lies around
    the number: an image that is drawn twice raises a precision, and the quantiles of
    the samples with it.

    Args:
        statistic: Function of the indices of images, (count,), of each set, that
            returns {name: number}.
        counts: Number of images of each set.
        low: Smallest possible number.
    """
    random = np.random.default_rng(0)
    whole = statistic(*map(np.arange, counts))
    samples = [
        statistic(*(random.integers(count, size=count) for count in counts))
        for _ in range(RESAMPLES)
    ]
    found = {}
    for name, value in whole.items():
        half = NORMAL * float(np.std([each[name] for each in samples], ddof=1))
        found[name] = Estimate(
            float(value), max(low, value - half), min(1.0, value + half)
        )
    return found


def of_mean(values: np.ndarray) -> Estimate:
    """Returns the mean of non-negative numbers of images, (count,), with its interval.

    It is the mean ± 1.96 standard errors.
    """
    mean = float(np.mean(values))
    half = NORMAL * float(np.std(values)) / max(1, len(values)) ** 0.5
    return Estimate(mean, max(0.0, mean - half), mean + half)
