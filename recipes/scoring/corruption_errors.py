"""mCE and relative mCE with intervals, against AlexNet or another model."""

import dataclasses

import numpy as np

from kerasvit import evaluation

from .kinds import SEVERITIES

RESAMPLES = 1_000


@dataclasses.dataclass(frozen=True)
class Errors:
    """Errors of a model on each image.

    Attributes:
        model: Name of the model.
        kinds: {corruption: share of the severities with a wrong answer (images,)}.
        clean: Whether the answer without corruption is wrong (clean images,), or None.
        is_paired: Whether these are the same images in the same order.
    """

    model: str
    kinds: dict[str, np.ndarray]
    clean: np.ndarray | None = None
    is_paired: bool = True


@dataclasses.dataclass(frozen=True)
class Ratio:
    """mCE or relative mCE; 1 is the reference.

    Attributes:
        value: The number.
        interval: Ends of its 95 % interval; None if the reference has no error in a
            sample of the images.
        reference: Name of the reference.
        kinds: Number of corruptions of which it is the mean.
    """

    value: float
    interval: tuple[float, float] | None
    reference: str
    kinds: int


def alexnet(errors: Errors) -> Errors:
    """Returns AlexNet's published errors as if each image of a model had them."""
    known, (count, clean) = evaluation.ALEXNET, _counts(errors)
    return Errors(
        known.name,
        {kind: np.full(count, error) for kind, error in known.errors.items()},
        None if clean is None else np.full(clean, known.clean),
        errors.is_paired,
    )


def ratio(ours: Errors, theirs: Errors, relative: bool = False) -> Ratio | None:
    """Returns mCE, or relative mCE, of the corruptions that both models have.

    The interval is the basic one of the bootstrap, as in
    `kerasvit.evaluation.bootstrap_interval`. Each sample has the same images for both
    models and all corruptions, and for the clean images if they are paired.

    Returns:
        None if there is no such corruption; if the models have other images; if the
        reference has no error for a corruption, or none beyond that on clean images; or
        if the clean images of one are missing.
    """
    kinds = [kind for kind in ours.kinds if kind in theirs.kinds]
    is_same = _counts(ours) == _counts(theirs) and ours.is_paired == theirs.is_paired
    if not kinds or not is_same or (relative and ours.clean is None):
        return None
    pair = (ours, theirs)
    corrupted = np.array([[each.kinds[kind] for kind in kinds] for each in pair])
    clean = np.array([each.clean for each in pair]) if relative else np.zeros((2, 1))
    value = _ratio(kinds, corrupted.mean(axis=2), clean.mean(axis=1), relative)
    if not np.isfinite(value):
        return None
    random, found = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        weights = _weights(random, corrupted.shape[2])
        own = weights
        if not (relative and ours.is_paired):
            own = _weights(random, clean.shape[1])
        found.append(_ratio(kinds, corrupted @ weights, clean @ own, relative))
    interval = None
    if np.isfinite(found).all():
        low, high = np.quantile(found, (0.025, 0.975))
        interval = float(2 * value - high), float(2 * value - low)
    return Ratio(float(value), interval, theirs.model, len(kinds))


def _ratio(kinds, errors, clean, relative):
    """Returns the number for mean errors (2, kinds) and (2,); infinity if undefined."""
    if errors[1].min() <= clean[1]:
        return np.inf
    accuracies = {  # of five severities, whose mean matters
        kind: [min(max(1 - error, 0), 1)] * len(SEVERITIES)
        for kind, error in zip(kinds, errors[0], strict=True)
    }
    known = dict(zip(kinds, errors[1], strict=True))
    reference = evaluation.Reference("", clean[1], known)
    if not relative:
        return evaluation.mean_corruption_error(accuracies, reference)
    return evaluation.relative_mean_corruption_error(
        accuracies, min(1 - clean[0], 1.0), reference
    )


def _weights(random, count):
    """Returns the share of each image in a sample of as many, with replacement."""
    drawn = random.integers(count, size=count)
    return np.bincount(drawn, minlength=count) / count


def _counts(errors):
    """Returns the numbers of images, corrupted and clean."""
    first = next(iter(errors.kinds.values()))
    return len(first), None if errors.clean is None else len(errors.clean)
