"""Numbers of each class of a model with several labels per image, for its card.

found = label_table.LabelTable(logits, labels, thresholds, names, "test")
found.numbers          # {"map": 0.81, "f1_micro": 0.74, ...}
label_table.add_to_card(path, found)
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np
from command.paths import file_name
from training.progress import counted

from kerasvit import evaluation

from .confusion import MAX_SHOWN, _cell, add_section, percent

START = "<!-- Written by recipes/, which replace it: labels of {} -->"
# In `Result.right`: arrays (count, classes), and (classes,).
OUTPUTS, LABELS, THRESHOLDS = "probabilities", "labels", "thresholds"
HALF = 0.5  # probability from which an image has a class, without thresholds


@dataclasses.dataclass(frozen=True)
class LabelTable:
    """Outputs for images, and the labels that these have.

    Attributes:
        probabilities: Of each class, (count, classes).
        labels: 0 and 1, (count, classes).
        thresholds: Probability from which an image has a class, (classes,).
        names: Names of the classes.
        of: Set of images, for headings.
    """

    probabilities: np.ndarray
    labels: np.ndarray
    thresholds: np.ndarray
    names: list[str]
    of: str

    @functools.cached_property
    def predicted(self) -> np.ndarray:
        """Whether each class is predicted, (count, classes)."""
        return self.probabilities >= self.thresholds

    @functools.cached_property
    def precisions(self) -> np.ndarray:
        """Average precision of each class; NaN of those that no image has."""
        return evaluation.average_precision(self.probabilities, self.labels)

    @property
    def numbers(self) -> dict[str, float]:
        """The mAP and three F1 scores, in [0, 1]."""
        return of_outputs(self.probabilities, self.labels, self.thresholds)

    @property
    def missing(self) -> list[str]:
        """Names of the classes that no image has: they are left out of the mAP."""
        return [self.names[i] for i in np.flatnonzero(np.isnan(self.precisions))]

    def section(self) -> str:
        """Returns the text for a card."""
        labels = self.labels.astype(bool)
        right = (labels & self.predicted).sum(0)
        have, named = labels.sum(0), self.predicted.sum(0)
        shown = np.argsort(-have, kind="stable")[:MAX_SHOWN]
        rows = [
            f"| {_cell(self.names[i])} | {have[i]:,} | {percent(self.precisions[i])} |"
            f" {_threshold(self.thresholds[i])} |"
            f" {percent(_ratio(right[i], named[i]))} |"
            f" {percent(_ratio(right[i], have[i]))} |"
            for i in shown
            if have[i]
        ]
        head = [
            "| class | images | average precision | threshold | precision | recall |",
            "| --- " * 6 + "|",
        ]
        of_half = np.all(self.thresholds == HALF)
        chosen = "" if of_half else ", which was chosen on validation images"
        text = [f"## Labels, {self.of}", "\n".join([*head, *rows])]
        text.append(
            f"Of {counted(len(labels))}. A class is predicted if its probability "
            f"reaches the threshold{chosen}."
        )
        if self.missing:
            text.append(f"No image has: {', '.join(map(_cell, self.missing))}.")
        return "\n\n".join(text)


def of_result(result, names: list[str] | None) -> LabelTable | None:
    """Returns the numbers of a `results.Result` of several labels; else None."""
    if OUTPUTS not in result.right:
        return None
    shares, labels = result.right[OUTPUTS], result.right[LABELS]
    names = names or [f"class {i}" for i in range(labels.shape[1])]
    return LabelTable(shares, labels, result.right[THRESHOLDS], names, result.set)


def of_outputs(probabilities, labels, thresholds=HALF) -> dict[str, float]:
    """Returns {name: number}: the mAP over the classes that an image has, and F1."""
    each = evaluation.average_precision(probabilities, labels)
    scores = evaluation.f1_scores(probabilities >= thresholds, labels)
    return {
        "map": float(np.nanmean(each)) if np.any(labels) else 0.0,
        **{f"f1_{average}": score for average, score in scores.items()},
    }


def add_to_card(path: Path, found: LabelTable) -> None:
    """Writes the table into a README.md, in place of that of an earlier run."""
    add_section(path, START.format(file_name(found.of)), found.section())


def _threshold(value):
    return f"{value:.3f}" if value <= 1 else "never"


def _ratio(part, whole):
    return part / whole if whole else np.nan
