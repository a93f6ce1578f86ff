"""Table, picture and section of a card about `evaluate.py --trust`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command.paths import file_name
from training.curves import save_figure
from training.progress import counted

import kerasvit

from . import confusion, tables
from .candidates import weights_of
from .results import Result
from .trust import METHODS, RECALL, RISK

BINS = 10  # of the reliability diagram
START = "<!-- Written by recipes/, which replace it: trust of {} -->"
NAMES = {  # of numbers
    "value": "",
    "top1": "top-1 in %",
    "nll": "NLL",
    "loss": "loss",
    "ece": "ECE in %",
    "brier": "Brier score",
    "f1_micro": "F1, micro, in %",
    "f1_macro": "F1, macro, in %",
    "f1_samples": "F1, samples, in %",
    "precision": "precision in %",
    "recall": "recall in %",
    "coverage": "coverage in %",
    "size": "classes per set",
    "aurc": "AURC in %",
    "answered": f"answered at {RISK:.0%} errors, in %",
    "auroc": "AUROC in %",
    "fpr95": "FPR95 in %",
}


def line(result: Result) -> str:
    """Returns a line about a result."""
    found = result.calibration
    how = "a temperature, an offset and a threshold for each class"
    if not isinstance(found["temperature"], list):
        how = f"temperature {found['temperature']:.3f}"
    held = sum(found["images"])
    return (
        f"{result.model}, {result.set}: calibrated on {held:,} validation images, "
        f"{how}; scored on {counted(result.images)}."
    )


def grid(results: Sequence[Result]) -> list[list[str]]:
    """Returns the rows of the table of a set: a number per row, a model per column."""
    first = results[0]
    stated = first.settings["coverage"]
    rows = [[f"{first.set}, trust", *(each.model for each in results)]]
    keys = dict.fromkeys(
        (part, name)
        for each in results
        for part, (_, scores) in each.parts.items()
        for name in scores
    )
    for part, name in keys:
        head = (
            f"{part} for {stated:.0%}" if part in (*METHODS.values(), RECALL) else part
        )
        head = ": ".join(filter(None, [head, NAMES[name]]))
        cells = [_cell(each, part, name) for each in results]
        rows.append([head, *cells])
    return rows


def _cell(result, part, name):
    found = result.parts.get(part)
    if found is None or name not in found.scores:
        return ""
    if name == "value":
        return f"{found.scores[name].value:.3f}"
    return tables.cell(name, found.scores[name])


def by_set(results: Sequence[Result]) -> list[list[Result]]:
    """Returns the results of each set."""
    names = dict.fromkeys(each.set for each in results)
    return [[each for each in results if each.set == name] for name in names]


def numbers(results: Sequence[Result]):
    """Yields the rows of the CSV."""
    yield ["model", "set", "images", "part", "number", "value", "low", "high"]
    for each in results:
        for part, (_, scores) in each.parts.items():
            for name, estimate in scores.items():
                yield [each.model, each.set, each.images, part, name, *estimate]


def write(results: Sequence[Result], folder: Path) -> None:
    """Writes trust.txt, .csv, .md, .tex and .json into the folder."""
    grids = [grid(each) for each in by_set(results)]
    content = [each.to_json() for each in results]
    tables.write_files(folder, "trust", grids, numbers(results), content)


def draw(result: Result, path: Path) -> None:
    """Draws reliability, the coverage of sets, and the errors by share of answers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import PercentFormatter

    hits, confidences = result.right["hits"], result.right["confidences"]
    several = hits.ndim == 2
    count = 2 if several else 3
    figure, axes = pyplot.subplots(
        1, count, figsize=(4 * count, 4), layout="constrained"
    )
    reliability, covered = axes[:2]
    temperature = result.calibration["temperature"]
    after = "calibrated" if several else f"temperature {temperature:.2f}"
    for values, name in zip(confidences, ("as trained", after), strict=True):
        points = _reliability(values.ravel(), hits.ravel())
        reliability.plot(*points, "o-", markersize=4, label=name)
    of = "a label" if several else "the predicted class"
    reliability.set(xlabel=f"probability of {of}", ylabel="correct")
    if len(curve := result.right["coverages"]):
        label = "of thresholds" if several else "of sets (RAPS)"
        covered.plot(*curve.T, "o-", markersize=4, label=label)
        covered.set_xlim(min(0.5, curve.min()), 1)
        covered.set_ylim(min(0.5, curve.min()), 1.01)
    covered.set(xlabel="stated coverage", ylabel="sets with the right class")
    if several:
        covered.set(xlabel="stated recall", ylabel="recall")
    else:
        found = kerasvit.evaluation.risk_coverage(confidences[1], hits)
        axes[2].plot(found.coverage, found.risk)
        axes[2].set(xlabel="share of the images that is answered", ylabel="errors")
        axes[2].set_ylim(bottom=0)
    for axis in axes[:2]:
        axis.axline((1, 1), slope=1, color="black", linewidth=0.8, linestyle=":")
        axis.legend(frameon=False, loc="lower right")
    for axis in axes:
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    title = f"{result.model}, {result.set}: {counted(result.images)}"
    figure.suptitle(title, fontsize="medium")
    save_figure(figure, path)


def _reliability(confidences, hits):
    """Returns the means of the confidences and of the hits of bins with images."""
    places = np.clip(np.ceil(confidences * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    used = counts > 0
    sums = (np.bincount(places, x, minlength=BINS) for x in (confidences, hits))
    return [each[used] / counts[used] for each in sums]


def is_stored(given: str, config) -> bool:
    """Whether a calibration is stored in the folder of a model, as for `store`."""
    path = Path(os.path.expanduser(weights_of(given))) / "config.json"
    if config.image_size or config.tta or not path.is_file():
        return False
    return "kerasvit" in json.loads(path.read_text("utf-8"))


def store(result: Result, given: str, config) -> str:
    """Stores a calibration in the folder of a model, and returns a line about it.

    Args:
        result: Result with the calibration.
        given: Name of the model in the command.
        config: Settings; with another size or views of images nothing is stored.
    """
    folder = Path(os.path.expanduser(weights_of(given)))
    if not is_stored(given, config):
        why = "as it is not a folder of save_pretrained"
        if config.image_size or config.tta:
            why = "with --image-size or --tta"
        return f"{result.model}: no calibration stored, {why}."
    before = json.loads((folder / "config.json").read_text("utf-8"))
    before = before["kerasvit"].get("calibration")
    again = "" if before in (None, result.calibration) else ", in place of that before"
    kerasvit.Calibration(**result.calibration).save(folder)
    use = "kerasvit.classify(model, image)"
    if result.calibration["thresholds"] is None:
        use = f"kerasvit.classify(model, image, coverage={result.settings['coverage']})"
    path = folder / "config.json"
    return f"Calibration by {result.set}: {path}{again}, for {use}."


def section(result: Result, picture: str) -> str:
    """Returns the text for a card, with the picture beside it."""
    found = result.calibration
    first, second = found["images"]
    text = [f"## Trust, {result.set}", f"![Trust of {result.set}]({picture})"]
    text.append(tables.markdown(grid([result])))
    text.append(
        f"Calibrated on {first + second:,} validation images: {first:,} gave the "
        f"temperature{'s and thresholds' if found['thresholds'] else ''}, {second:,} "
        f"the scores of sets and of unlike images. Scored on {counted(result.images)} "
        "of the test. Brackets: 95 % intervals."
        + (
            " Sections that were written before have the thresholds of their time."
            if found["thresholds"]
            else ""
        )
    )
    return "\n\n".join(text)


def add_to_card(path: Path, result: Result) -> None:
    """Writes the section into a README.md, in place of that of an earlier run."""
    picture = f"trust_{file_name(result.set)}.png"
    draw(result, path.with_name(picture))
    start = START.format(file_name(result.set))
    confusion.add_section(path, start, section(result, picture))
