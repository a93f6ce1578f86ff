"""Intervals of numbers that are measured on a sample of images."""

from collections.abc import Callable

import numpy as np

from kerasvit.arguments import ArgumentError, integer

_LEVEL = 0.95
_Z = 1.959963984540054  # quantile of the normal distribution, of (1 + level) / 2


def binomial_interval(right: int, count: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share, in [0, 1].

    Args:
        right: Number of images that are right.
        count: Number of images, ≥ 1.

    Reference: Wilson 1927, J. Am. Stat. Assoc. 22; it also holds for shares near 0 and
    1, and for few images.
    """
    count = integer("count", count, 1)
    right = integer("right", right, 0, count)
    share, spread = right / count, _Z**2 / count
    center = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return float(max(0.0, center - half)), float(min(1.0, center + half))


def unpaired_difference(
    right: int, count: int, other_right: int, other_count: int
) -> tuple[float, float, float]:
    """Returns how much larger the second of two shares is, with its 95 % interval.

    It is for two models of which only the accuracies are known, or that saw different
    images. Of the same images it is wider than `paired_difference`.

    Args:
        right, count: As for `binomial_interval`.
        other_right, other_count: Those of the second share.

    Returns:
        Difference of the shares, and the ends of its interval, in [-1, 1].

    Reference: Newcombe 1998, Stat. Med. 17, method 10.
    """
    low, high = binomial_interval(right, count)
    other_low, other_high = binomial_interval(other_right, other_count)
    share, other = right / count, other_right / other_count
    down = np.hypot(other - other_low, high - share)
    up = np.hypot(other_high - other, share - low)
    difference = other - share
    return difference, float(difference - down), float(difference + up)


def bootstrap_interval(
    statistic: Callable[[np.ndarray], float],
    count: int,
    *,
    resamples: int = 1_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns the 95 % basic interval of a number that is computed from images.

    It is [2 v − q(0.975), 2 v − q(0.025)], of the value v and the quantiles q of the
    samples. Other than the interval of the quantiles, it subtracts the bias of v. The
    bias of the calibration error is large: samples add as much noise as the images.

    Args:
        statistic: Function of indices of images, (count,), that returns the number.
        count: Number of images, ≥ 1.
        resamples: Number of samples that are drawn with replacement, ≥ 1.
        seed: Seed of the draws.

    Reference: Davison and Hinkley 1997, Bootstrap Methods and their Application, 5.2.
    """
    count, resamples = integer("count", count, 1), integer("resamples", resamples, 1)
    random = np.random.default_rng(seed)
    found = [statistic(random.integers(count, size=count)) for _ in range(resamples)]
    low, high = _percentiles(found)
    whole = 2 * statistic(np.arange(count))
    return whole - high, whole - low


def seeds_interval(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of a mean over images and over seeds of the method.

    The variance of the mean is the sum of two: that of the images, s²(mean over the
    seeds) / images, and that of the seeds, s²(mean over the images) / seeds. Student's
    t has the degrees of freedom of Welch and Satterthwaite: 2 if the seeds of three
    differ most. With one seed the interval is of this seed alone. In a simulation with
    three seeds and 100 to 10,000 images it covers 94.5 to 99 %. It needs SciPy, which
    scikit-learn installs.

    Args:
        values: Array (seeds, images), such as whether each image is right; at least one
            seed and two images.

    Raises:
        ArgumentError: The array has another shape.

    Reference: Welch 1947, Biometrika 34.
    """
    from scipy.stats import t

    values = np.asarray(values, "float64")
    if values.ndim != 2 or len(values) < 1 or values.shape[1] < 2:
        raise ArgumentError(
            "`values` must be an array (seeds, images) of two images or more. "
            f"Received: shape {values.shape}.",
            "values",
        )
    seeds, images = values.shape
    variances = [values.mean(0).var(ddof=1) / images]
    freedom = [images - 1]
    if seeds > 1:
        variances.append(values.mean(1).var(ddof=1) / seeds)
        freedom.append(seeds - 1)
    total, mean = sum(variances), float(values.mean())
    if total == 0:
        return mean, mean
    parts = [v**2 / n for v, n in zip(variances, freedom, strict=True)]
    half = float(t.ppf((1 + _LEVEL) / 2, total**2 / sum(parts)) * np.sqrt(total))
    return mean - half, mean + half


def paired_difference(
    hits: np.ndarray, others: np.ndarray, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Returns how much more accurate the second of two models is, with its interval.

    The images are resampled, each with the answers of both models: the interval is
    narrower than that of two accuracies if the models are wrong on the same images.

    Args:
        hits, others: Whether each of the same images is right, or the share of its
            corrupted versions that are, (count,); or, of a method with seeds, (seeds,
            count), for which `seeds_interval` of the differences is the interval.
        resamples: Number of samples that are drawn with replacement, ≥ 1.
        seed: Seed of the draws.

    Returns:
        Difference of the accuracies, and the ends of its 95 % interval, in [-1, 1].

    Raises:
        ArgumentError: The arrays have different shapes, or are empty.
    """
    hits, others = np.asarray(hits, float), np.asarray(others, float)
    if hits.shape != others.shape or not hits.size:
        raise ArgumentError(
            "`hits` and `others` must have one entry for each of the same images. "
            f"Received: {hits.shape} and {others.shape}.",
            *("hits", "others"),
        )
    differences = others - hits
    if differences.ndim == 2:
        return float(differences.mean()), *seeds_interval(differences)
    count = len(differences)
    # A sample is known by how many of its images have each of the differences.
    values, counts = np.unique(differences, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(
        count, counts / count, integer("resamples", resamples, 1)
    )
    low, high = _percentiles(drawn @ values / count)
    return float(differences.mean()), low, high


def _percentiles(values: list[float] | np.ndarray) -> tuple[float, float]:
    ends = (1 - _LEVEL) / 2, (1 + _LEVEL) / 2
    low, high = np.quantile(values, ends)
    return float(low), float(high)
