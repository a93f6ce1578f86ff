"""What an experiment consists of, and the verdict on a claim of a paper.

Each claim is a named difference with its sign in the paper. It is measured once per
seed, and the verdict is that of the mean and its 95 % interval.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

AGREES, DISAGREES = "agrees", "disagrees"
UNDECIDED = "cannot be told from so few"
NOT_MEASURED = "not measured"
Measured = dict[str, Any]  # numbers of one subject, as JSON has them
OneSeed = dict[str, Measured]  # {label: numbers}
Results = dict[str, list[Measured]]  # {label: numbers of each seed}


@dataclasses.dataclass(frozen=True)
class Claim:
    """A difference that the paper reports.

    Attributes:
        text: What is compared, such as "λmax of the ViT: with SAM − without".
        sign: Sign of the difference in the paper, 1 or -1.
        source: Its row or figure, with the numbers if there are any.
        difference: Function of {label: numbers} of one seed.
    """

    text: str
    sign: int
    source: str
    difference: Callable[[OneSeed], float]

    def judged(self, seeds: list[OneSeed]) -> dict:
        """Returns the differences of the seeds, and the verdict on them."""
        differences = [self.difference(each) for each in seeds]
        found = verdict(differences, self.sign)
        missing = all(map(math.isnan, differences))
        return {
            "text": self.text,
            "source": self.source,
            "values": _finite(differences),
            "here": "–" if missing else _with_interval(found),
            "word": NOT_MEASURED if missing else found.word,
        }


@dataclasses.dataclass(frozen=True)
class Number:
    """A number without chance that the paper states or proves.

    Attributes:
        text: What it is.
        expected: The paper's number.
        tolerance: Largest difference with which it agrees.
        source: Where the paper has it.
        value: Function of {label: numbers} of one seed.
    """

    text: str
    expected: float
    tolerance: float
    source: str
    value: Callable[[OneSeed], float]

    def judged(self, seeds: list[OneSeed]) -> dict:
        """Returns the numbers of the seeds, and whether all are close enough."""
        values = [self.value(each) for each in seeds]
        apart = np.abs(np.asarray(values, "float64") - self.expected)
        agrees = np.all(apart <= self.tolerance)  # False for NaN
        return {
            "text": self.text,
            "source": f"{self.source}; tolerance {self.tolerance:g}",
            "values": _finite(values),
            "here": f"{values[int(np.argmax(apart))]:.3g}",  # NaN is the largest
            "word": AGREES if agrees else DISAGREES,
        }


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the table, with mean ± standard deviation of the seeds.

    Attributes:
        heading: Name of the quantity, with its unit.
        value: Function of the numbers of a subject; None if it lacks the quantity.
        digits: Digits after the point.
    """

    heading: str
    value: Callable[[Measured], float | None]
    digits: int = 2


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A figure or a table of a paper.

    Attributes:
        paper: The paper's numbers, as a Markdown table, or a sentence with its claim.
        subjects: Function of the settings that returns {label: `pretrain.Config`} of
            what is trained, or None instead where nothing is. Seeds are set later.
        measure: Function of a `Subject` that returns numbers as JSON has them.
        claims: At most four.
        columns: Columns of the table, which has a row for each label.
        draw: Function that draws the results into a `matplotlib.figure.Figure`.
        size: Width and height of the figure in inches.
        options: Settings that only some experiments have, and this one does.
        notes: Sentences about what differs from the paper.
        check: Function of the settings that raises a `ValueError` for images that
            `measure` needs and that are not there; None: it needs no others.
    """

    paper: str
    subjects: Callable[..., dict]
    measure: Callable[..., Measured]
    claims: Sequence[Claim | Number]
    columns: Sequence[Column]
    draw: Callable[..., None]
    size: tuple[float, float] = (8, 4)
    options: Sequence[str] = ()
    notes: str = ""
    check: Callable[..., None] | None = None


def _finite(values):
    """Returns numbers as JSON has them: None for those that are not finite."""
    return [value if math.isfinite(value) else None for value in values]


class Verdict(NamedTuple):
    """What is said of a claim.

    Attributes:
        mean: Mean difference of the seeds.
        low, high: Ends of its 95 % interval; NaN for one seed.
        word: `AGREES`, `DISAGREES` or `UNDECIDED`.
    """

    mean: float
    low: float
    high: float
    word: str


def verdict(differences: Sequence[float], sign: int) -> Verdict:
    """Returns whether differences have the sign of the paper.

    The interval of the mean is that of Student's t distribution with n − 1 degrees of
    freedom. On the paper's side of 0 they agree, on the other side they disagree;
    around 0, or with one seed or a number that is not finite, it cannot be told.

    Args:
        differences: One of each seed.
        sign: Sign of the difference in the paper, 1 or -1.
    """
    from scipy import stats

    values = np.asarray(differences, "float64")
    mean, count = float(values.mean()), len(values)
    if count < 2 or not np.isfinite(values).all():
        return Verdict(mean, math.nan, math.nan, UNDECIDED)
    error = values.std(ddof=1) / math.sqrt(count)
    half = float(stats.t.ppf(0.975, count - 1) * error)
    low, high = mean - half, mean + half
    if low <= 0 <= high:
        return Verdict(mean, low, high, UNDECIDED)
    return Verdict(mean, low, high, AGREES if mean * sign > 0 else DISAGREES)


def _with_interval(found):
    """Returns a mean and its interval, with three digits."""
    if math.isnan(found.low):
        return f"{found.mean:.3g}"
    return f"{found.mean:.3g} [{found.low:.3g}, {found.high:.3g}]"


def by_seed(results: Results) -> list[OneSeed]:
    """Returns {label: numbers} of each seed."""
    count = min(map(len, results.values()))
    return [{label: found[i] for label, found in results.items()} for i in range(count)]


def cell(values: Sequence[float | None], digits: int) -> str:
    """Returns mean ± standard deviation; the number alone, of one; "–" for none."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    mean = f"{np.mean(numbers):.{digits}f}"
    if len(numbers) == 1:
        return mean
    return f"{mean} ± {np.std(numbers, ddof=1):.{digits}f}"
