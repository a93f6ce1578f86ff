"""Means of the accuracies on corrupted images, and corruption errors."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kerasvit import evaluation

from . import corruption_errors, published
from .corrupted import Plan, part_name
from .corruption_errors import Errors, Ratio
from .kinds import KINDS, PUBLISHED, SEVERITIES
from .results import Part, Result

IMAGENET = ("imagenet2012", "imagenet2012_corrupted")  # AlexNet's errors are of these


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
    def set(self) -> str:
        """Name of the set."""
        return self.first.set

    @property
    def title(self) -> str:
        """Name of the set for tables, with the number of classes if not of all."""
        return self.set if self.part == "all" else f"{self.set}, {self.classes} classes"

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
            name = published.CORRUPTED_MEAN
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
        plan: Result of `corrupted.plan`.
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
    name, model, part = summary.set, summary.model, summary.part
    ours = errors[name, model, part]
    is_imagenet = name in IMAGENET and summary.classes == 1000
    if reference is None and is_imagenet and not summary.first.unmatched:
        theirs = corruption_errors.alexnet(ours)
    else:
        theirs = errors.get((name, reference or first, part))
    if theirs is None or theirs is ours:  # the reference has the errors 1
        return {}
    ratio = corruption_errors.ratio
    return {"mce": ratio(ours, theirs), "relative_mce": ratio(ours, theirs, True)}
