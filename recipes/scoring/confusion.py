"""Which classes a model confuses, and how many images of each class are right.

found = confusion.Confusion(true, predicted, names)
found.draw(path)                # where it has at most MAX_DRAWN classes
found.section("confusion.png")  # text for a model card
"""

import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
from command.paths import file_name
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    confusion_matrix,
    precision_recall_fscore_support,
)
from training.curves import save_figure
from training.progress import counted
from training.run_folder import replace_file

from kerasvit.hub import is_generated, read_page, signed

from .outputs import Predictor

MAX_DRAWN = 40  # classes of a picture
WITH_NUMBERS = 20  # classes up to which its cells have numbers
PAIRS = 10  # of a table
MAX_SHOWN = 100  # classes of a table, those with the most images
MAX_NAMED = 20  # classes without images
NAME_LENGTH = 24
# kerasvit knows these lines: a copy of the model with other weights leaves them out.
START = "<!-- Written by recipes/, which replace it: confusion of {} -->"
END = "<!-- until here. -->"
CLASSES = ("class", "predicted class")  # in `Result.right`


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Classes of images, and those that a model predicts.

    Attributes:
        true, predicted: Indices of classes (count,), int.
        names: Names of the classes.
        of: Set of images, for headings.
    """

    true: np.ndarray
    predicted: np.ndarray
    names: list[str]
    of: str

    @functools.cached_property
    def classes(self) -> np.ndarray:
        """Sorted classes that occur among the images or the predictions."""
        return np.union1d(self.true, self.predicted)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Number of images by class, in rows, and predicted class, of `classes`."""
        return confusion_matrix(self.true, self.predicted, labels=self.classes)

    @functools.cached_property
    def by_class(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Precision, recall and number of images of each of `classes`.

        The precision of a class that is never predicted is NaN, and so is the recall of
        a class without images.
        """
        precision, recall, _, images = precision_recall_fscore_support(
            self.true, self.predicted, labels=self.classes, zero_division=np.nan
        )
        return precision, recall, images

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the recall over the classes that have images, in [0, 1]."""
        return float(np.nanmean(self.by_class[1]))

    @property
    def is_drawn(self) -> bool:
        """Whether there are few enough classes for a picture."""
        return len(self.classes) <= MAX_DRAWN

    def pairs(self) -> list[tuple[str, str, int, float]]:
        """Returns (class, predicted class, images, share of the class), most first."""
        wrong = self.counts * (1 - np.eye(len(self.classes), dtype=int))
        order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
        names = [self.names[i] for i in self.classes]
        return [
            (names[i], names[j], int(wrong[i, j]), wrong[i, j] / self.counts[i].sum())
            for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
            if wrong[i, j]
        ]

    def section(self, picture: str | None) -> str:
        """Returns the text for a card, with a picture beside it if it is named."""
        lines = [f"## Confusion, {self.of}"]
        if picture:
            lines.append(f"![Confusion matrix of {self.of}]({picture})")
        if pairs := self.pairs():
            rows = [
                f"| {_cell(one)} | {_cell(other)} | {count} | {100 * share:.1f} % |"
                for one, other, count, share in pairs
            ]
            head = ["| class | predicted | images | of the class |", "| --- " * 4 + "|"]
            lines.append("\n".join([*head, *rows]))
        else:
            lines.append(f"All {counted(len(self.true))} are classified correctly.")
        return "\n\n".join([*lines, *self._of_each_class()])

    def _of_each_class(self) -> list[str]:
        """Returns sentences about the classes, and their table."""
        precision, recall, images = self.by_class
        there = np.unique(self.true)
        text = f"Balanced accuracy: {percent(self.balanced_accuracy)}, the mean of the "
        text += f"recall of {len(there):,} class{'es' * (len(there) != 1)}."
        missing = np.setdiff1d(np.arange(len(self.names)), there)
        if len(missing):
            text += " Without images, and left out: "
            text += ", ".join(_cell(self.names[i]) for i in missing[:MAX_NAMED])
            more = len(missing) - MAX_NAMED
            text += f" and {more:,} more." if more > 0 else "."
        shown = np.argsort(-images, kind="stable")[:MAX_SHOWN]
        rows = [
            f"| {_cell(self.names[self.classes[i]])} | {images[i]:,} |"
            f" {percent(precision[i])} | {percent(recall[i])} |"
            for i in shown
            if images[i]
        ]
        head = ["| class | images | precision | recall |", "| --- " * 4 + "|"]
        found = [text, "\n".join([*head, *rows])]
        if len(there) > MAX_SHOWN:
            found.append(f"The {MAX_SHOWN} classes with the most images are shown.")
        return found

    def draw(self, path: Path) -> None:
        """Draws the shares of the classes' images, with counts if there is room."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        counts, names = self.counts, [self._name(i) for i in self.classes]
        has_numbers = len(names) <= WITH_NUMBERS
        side = 2.6 + max(2.4, (0.34 if has_numbers else 0.24) * len(names))
        figure, axis = pyplot.subplots(figsize=(side + 0.6, side), layout="constrained")
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        shown = ConfusionMatrixDisplay(shares, display_labels=names).plot(
            ax=axis,
            cmap="Blues",
            colorbar=False,
            im_kw={"vmin": 0, "vmax": 1},
            include_values=has_numbers,
            text_kw={"fontsize": 7},
            xticks_rotation="vertical",
        )
        if has_numbers:  # of images, and not the shares
            for place, text in np.ndenumerate(shown.text_):
                text.set_text(counts[place] or "")
        right = np.mean(self.true == self.predicted)
        title = f"{self.of}: {counted(len(self.true))}, {100 * right:.1f} % correct"
        axis.set_title(title, fontsize="medium", wrap=True)
        axis.set(xlabel="predicted class", ylabel="class")
        axis.tick_params(length=0, labelsize=8 if has_numbers else 7)
        bar = figure.colorbar(
            shown.im_, shrink=0.6, label="share of the class's images"
        )
        bar.outline.set_visible(False)
        save_figure(figure, path)

    def _name(self, i: int) -> str:
        name = " ".join(self.names[i].split())
        return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def of_result(result, names: list[str] | None, classes: int) -> Confusion | None:
    """Returns the confusion of a `results.Result` of a model's outputs.

    It is None for other results, and for those of an earlier version.
    """
    if result.measure or not set(CLASSES) <= result.right.keys():
        return None
    names = names or [f"class {i}" for i in range(classes)]
    return Confusion(*(result.right[each] for each in CLASSES), names, result.set)


def of_model(predict: Predictor, model, images, names, of: str) -> Confusion:
    """Returns that of an `ImageModel` on the devices; all processes call it."""
    outputs = predict(model, images, model)
    return Confusion(np.asarray(images.labels), outputs.argmax(1), names, of)


def add_to_card(path: Path, found: Confusion) -> None:
    """Writes the confusion into a README.md, in place of that of an earlier run.

    The picture, for few classes, is beside it.
    """
    name = f"confusion_{file_name(found.of)}.png"
    if found.is_drawn:
        found.draw(path.with_name(name))
    section = found.section(name if found.is_drawn else None)
    add_section(path, START.format(file_name(found.of)), section)


def add_section(path: Path, start: str, section: str) -> None:
    """Writes a section into a README.md, in place of that after the line `start`."""
    before = read_page(path) if path.exists() else b""
    text = with_section(before.decode("utf-8", "surrogateescape"), start, section)
    if is_generated(before):
        text = signed(text)
    write_page(path, text.encode("utf-8", "surrogateescape"))


def with_section(text: str, start: str, section: str) -> str:
    """Returns a page with a section in place of that after `start`, or at its end."""
    new = f"{start}\n\n{section.strip()}\n\n{END}"
    found = re.search(f"{re.escape(start)}.*?{re.escape(END)}", text, re.DOTALL)
    if found:
        return text[: found.start()] + new + text[found.end() :]
    return f"{text.rstrip()}\n\n{new}\n"


def write_page(path: Path, content: bytes) -> None:
    """Writes a README.md atomically."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(content)
    replace_file(unfinished, path)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def percent(share: float) -> str:
    """Returns, for example, "81.2 %"; "–" for NaN."""
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"
