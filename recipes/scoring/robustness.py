"""Means of the accuracies on corrupted images, and corruption errors.

mCE and relative mCE have intervals, and are against AlexNet or another model.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kerasvit import evaluation

from . import catalogue
from .catalogue import KINDS, PUBLISHED, SEVERITIES
from .corrupted import Plan, part_name
from .results import Part, Result

IMAGENET = ("imagenet2012", "imagenet2012_corrupted")  # AlexNet's errors are of these
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


@dataclasses.dataclass(frozen=True)
class Summary:
    """Numbers of a model on a set with all corruptions.

    Attributes:
        results: {kind: `Result`}.
        part: "all" or "restricted" classes.
        left_out: {kind: reason} of those that were asked for and failed.
        errors: Share of the severities with a wrong answer (kinds, images).
        means: {kind: mean top-1 of the severities}. All intervals of means are
            bootstrapped over the images.
        means_of_severities: Mean of the kinds for each severity.
        mean: Mean of all.
        mce, relative_mce: None without a reference of which they are defined. The
            second also needs the accuracy on clean images.
    """

    results: dict[str, Result]
    part: str
    left_out: dict[str, str]
    errors: np.ndarray
    means: dict[str, evaluation.Estimate]
    means_of_severities: list[evaluation.Estimate]
    mean: evaluation.Estimate
    mce: Ratio | None = None
    relative_mce: Ratio | None = None

    @property
    def first(self) -> Result:
        """The result of the first corruption."""
        return next(iter(self.results.values()))

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.first.model

    @property
    def title(self) -> str:
        """Name of the set for tables, with the number of classes if not of all."""
        name = self.first.set
        return name if self.part == "all" else f"{name}, {self.classes} classes"

    @property
    def mean_name(self) -> str:
        """Name of the mean for tables, with its denominator."""
        asked = len(self.means) + len(self.left_out)
        of = f" of {asked}" if self.left_out else ""
        return f"mean of {len(self.means)}{of} corruption{'s' * (asked > 1)}"

    @property
    def classes(self) -> int:
        """Number of classes among which the model chooses."""
        return self.first.parts[part_name(1, self.part)].classes

    @property
    def severities(self) -> dict[str, list[evaluation.Estimate]]:
        """{kind: top-1 of each severity}."""
        return {
            kind: [
                result.parts[part_name(i, self.part)].scores["top1"] for i in SEVERITIES
            ]
            for kind, result in self.results.items()
        }

    def result(self) -> Result:
        """Returns the mean as a `Result`, for `tables.py`."""
        count = len(self.means)
        name = f"corrupted (mean of {count} kind{'s' * (count > 1)})"
        if set(self.means) == set(PUBLISHED):
            name = catalogue.CORRUPTED_MEAN
        if self.part == "restricted":
            name = f"{name}, {self.classes} classes"
        return dataclasses.replace(
            self.first,
            measure=f"corrupted, {self.part}",
            parts={name: Part(self.classes, {"top1": self.mean})},
            right={name: 1 - self.errors.mean(axis=0)},
            seconds=sum(each.seconds for each in self.results.values()),
        )


def summarize(
    scored: Sequence[Result], plan: Plan, reference: str | None = None
) -> list[Summary]:
    """Returns the numbers of each model and set with corruptions.

    Args:
        scored: Results, those of corruptions and others.
        plan: What was measured.
        reference: Name of the model whose errors are 1; None: AlexNet for all 1,000
            classes of ImageNet, and else the first model.
    """
    grouped: dict = {}
    for each in scored:
        if each.measure in KINDS:
            grouped.setdefault((each.set, each.model), {})[each.measure] = each
    found = {
        (name, model, part): _summary(results, part, plan.left_out[model, name])
        for (name, model), results in grouped.items()
        for part in ("all", "restricted")
        if part_name(1, part) in next(iter(results.values())).parts
    }
    clean = {(x.set, x.model): x for x in scored if not x.measure}
    errors = {
        (name, model, part): _errors(each, clean.get((plan.clean[name], model)))
        for (name, model, part), each in found.items()
    }
    first = next(iter(each.model for each in scored), None)
    return [
        dataclasses.replace(each, **_ratios(each, errors, reference, first))
        for each in found.values()
    ]


def _summary(results, part, left_out):
    wrong = np.array(  # (kinds, severities, images)
        [
            [~each.right[part_name(i, part)] for i in SEVERITIES]
            for each in results.values()
        ]
    )
    errors = wrong.mean(axis=1)
    return Summary(
        results=results,
        part=part,
        left_out=left_out,
        errors=errors,
        means={k: _mean(1 - row) for k, row in zip(results, errors, strict=True)},
        means_of_severities=[_mean(1 - x) for x in wrong.mean(axis=0)],
        mean=_mean(1 - errors.mean(axis=0)),
    )


def _mean(shares):
    """Returns the mean of a share of each image, with its interval.

    It is Wilson's if all shares are equal, of which a bootstrap has no width.
    """
    mean, count = float(shares.mean()), len(shares)
    if np.ptp(shares) > 0:
        ends = evaluation.bootstrap_interval(lambda i: shares[i].mean(), count)
    else:
        ends = evaluation.binomial_interval(round(mean * count), count)
    return evaluation.Estimate(mean, max(ends[0], 0.0), min(ends[1], 1.0))


def _errors(summary, clean):
    """Returns the errors of a model; `clean` is its result on clean images, or None."""
    kinds = dict(zip(summary.results, summary.errors, strict=True))
    if clean is None or summary.part not in clean.right:
        return Errors(summary.model, kinds)
    is_paired = clean.settings["labels"] == summary.first.settings["labels"]
    return Errors(summary.model, kinds, 1.0 - clean.right[summary.part], is_paired)


def _ratios(summary, errors, reference, first):
    """Returns the fields `mce` and `relative_mce`, if there is a reference."""
    name, model, part = summary.first.set, summary.model, summary.part
    ours = errors[name, model, part]
    is_imagenet = name in IMAGENET and summary.classes == 1000
    if reference is None and is_imagenet and not summary.first.unmatched:
        theirs = alexnet(ours)
    else:
        theirs = errors.get((name, reference or first, part))
    if theirs is None or theirs is ours:  # the reference has the errors 1
        return {}
    return {"mce": ratio(ours, theirs), "relative_mce": ratio(ours, theirs, True)}


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
    value = _ratio(corrupted.mean(axis=2), clean.mean(axis=1))
    if not np.isfinite(value):
        return None
    random, found = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        weights = _weights(random, corrupted.shape[2])
        own = weights
        if not (relative and ours.is_paired):
            own = _weights(random, clean.shape[1])
        found.append(_ratio(corrupted @ weights, clean @ own))
    interval = None
    if np.isfinite(found).all():
        low, high = np.quantile(found, (0.025, 0.975))
        interval = float(2 * value - high), float(2 * value - low)
    return Ratio(float(value), interval, theirs.model, len(kinds))


def _ratio(errors, clean):
    """Returns the mean of ours / theirs, of errors beyond those on clean images.

    Args:
        errors: Mean errors of both models (2, kinds).
        clean: Their errors on clean images (2,); zeros for mCE.

    Returns:
        Infinity if their errors are not beyond.
    """
    ours, theirs = errors - clean[:, None]
    return np.mean(ours / theirs) if theirs.min() > 0 else np.inf


def _weights(random, count):
    """Returns the share of each image in a sample of as many, with replacement."""
    drawn = random.integers(count, size=count)
    return np.bincount(drawn, minlength=count) / count


def _counts(errors):
    """Returns the numbers of images, corrupted and clean."""
    first = next(iter(errors.kinds.values()))
    return len(first), None if errors.clean is None else len(errors.clean)
