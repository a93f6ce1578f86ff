"""Prints, writes and draws the accuracies on corrupted images."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from training.curves import save_figure
from training.progress import counted

from . import tables
from .catalogue import KINDS, SEVERITIES
from .corrupted import part_name
from .results import Result
from .robustness import Summary

# Okabe and Ito's colours, which the colour-blind can tell apart, and markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def line(result: Result) -> str:
    """Returns a line about the result of a corruption."""
    shares = [
        f"{100 * result.parts[part_name(i, 'all')].scores['top1'].value:.1f}"
        for i in SEVERITIES
    ]
    head = f"{result.model}, {result.set}, {result.measure}, {counted(result.images)}"
    return f"{head}: top-1 of severities 1 to 5 {', '.join(shares)} %."


def compared(summaries: Sequence[Summary]) -> list[list[list[str]]]:
    """Returns the rows of a table for each set: corruptions by models.

    The last rows are the means, mCE and relative mCE, these times 100.
    """
    titles = dict.fromkeys(each.title for each in summaries)
    return [_compared([x for x in summaries if x.title == name]) for name in titles]


def _compared(found):
    kinds = [kind for kind in KINDS if any(kind in each.means for each in found)]
    rows = [[f"{found[0].title}: top-1 in %", *(each.model for each in found)]]
    for kind in kinds:
        rows.append([kind, *(_percent(each.means.get(kind)) for each in found)])
    names = list(dict.fromkeys(each.mean_name for each in found))
    for name in names:
        cells = (
            _percent(each.mean) if each.mean_name == name else "" for each in found
        )
        rows.append([name, *cells])
    for name, field in (("mCE", "mce"), ("relative mCE", "relative_mce")):
        ratios = [getattr(each, field) for each in found]
        scales = {(x.reference, x.kinds) for x in ratios if x}
        for reference, count in sorted(scales):
            label = f"{name} of {count} kinds ({reference}: 100)"
            cells = (_ratio(x, (reference, count)) for x in ratios)
            rows.append([label, *cells])
    return rows


def by_severity(summary: Summary) -> list[list[str]]:
    """Returns the rows of a table: corruptions by severities."""
    head = f"{summary.title}, {summary.model}: top-1 in %"
    rows = [[head, *map(str, SEVERITIES), "mean"]]
    for kind, found in summary.severities.items():
        cells = [f"{100 * each.value:.1f}" for each in found]
        rows.append([kind, *cells, _percent(summary.means[kind])])
    cells = [f"{100 * each.value:.1f}" for each in summary.means_of_severities]
    return [*rows, [summary.mean_name, *cells, _percent(summary.mean)]]


def write(summaries: Sequence[Summary], folder: Path) -> None:
    """Writes corruptions.txt, .csv, .md, .tex, .json and .png, if there are any."""
    if not summaries:
        return
    found = [*compared(summaries), *map(by_severity, summaries)]
    content = [_content(each) for each in summaries]
    tables.write_files(folder, "corruptions", found, _numbers(summaries), content)
    draw(summaries, folder / "corruptions.png")


def _percent(estimate):
    """Returns "78.30 [77.9, 78.7]"; "" for None."""
    if estimate is None:
        return ""
    value, low, high = (100 * each for each in estimate)
    return f"{value:.2f} [{low:.1f}, {high:.1f}]"


def _ratio(ratio, scale):
    if ratio is None or (ratio.reference, ratio.kinds) != scale:
        return ""
    if ratio.interval is None:
        return f"{100 * ratio.value:.1f}"
    return _percent((ratio.value, *ratio.interval))


def _content(summary):
    """Returns all numbers as JSON."""
    ratios = {"mce": summary.mce, "relative_mce": summary.relative_mce}
    return {
        "model": summary.model,
        "set": summary.first.set,
        "classes": summary.classes,
        "images": summary.first.images,
        "top1": summary.severities,
        "means": summary.means,
        "mean": summary.mean,
        "left_out": summary.left_out,
        **{name: each and dataclasses.asdict(each) for name, each in ratios.items()},
    }


def _numbers(summaries):
    """Yields rows of one number, with the ends of its interval."""
    first = ("model", "set", "classes", "images")
    yield [*first, "kind", "severity", "metric", "value", "low", "high"]
    for each in summaries:
        first = each.model, each.first.set, each.classes, each.first.images
        for kind, result in each.results.items():
            for severity in SEVERITIES:
                scores = result.parts[part_name(severity, each.part)].scores
                for metric, numbers in scores.items():
                    yield [*first, kind, severity, metric, *numbers]
            yield [*first, kind, "mean", "top1", *each.means[kind]]
        yield [*first, "mean", "mean", "top1", *each.mean]
        for name in ("mce", "relative_mce"):
            if ratio := getattr(each, name):
                ends = ratio.interval or (None, None)
                yield [*first, "mean", "mean", name, ratio.value, *ends]


def draw(summaries: Sequence[Summary], path: Path) -> None:
    """Plots top-1 with 95 % intervals: a set per row, a model per colour and marker."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = list(dict.fromkeys(each.title for each in summaries))
    models = list(dict.fromkeys(each.model for each in summaries))
    figure, axes = pyplot.subplots(
        len(titles),
        2,
        figsize=(11, 4.5 * len(titles) + 0.5),
        width_ratios=(1, 1.6),
        squeeze=False,
        layout="constrained",
    )
    for (left, right), title in zip(axes, titles, strict=True):
        found = [each for each in summaries if each.title == title]
        _draw_set(left, right, found, models)
    figure.suptitle("Top-1 accuracy with 95 % intervals", fontsize="medium")
    labels = axes[0][0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def _draw_set(left, right, found, models):
    """Draws the summaries of a set, over severities and by corruption."""
    kinds = [kind for kind in KINDS if any(kind in each.means for each in found)]
    for place, each in enumerate(found):
        i = models.index(each.model)
        options = {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        options |= {"label": each.model, "markersize": 5, "capsize": 2, "linewidth": 1}
        shift = (place - (len(found) - 1) / 2) / (len(found) + 2)  # beside each other
        values, ends = _values_and_ends(each.means_of_severities)
        left.errorbar(np.array(SEVERITIES) + shift / 4, values, ends, **options)
        values, ends = _values_and_ends(each.means.values())
        rows = [kinds.index(kind) + shift for kind in each.means]
        right.errorbar(values, rows, xerr=ends, linestyle="none", **options)
    names = " and ".join(dict.fromkeys(each.mean_name for each in found))
    left.set_title(f"{found[0].title}: {names}", fontsize="medium")
    left.set(xlabel="severity", ylabel="accuracy, %", xticks=SEVERITIES)
    right.set_title("mean of severities 1 to 5", fontsize="medium")
    right.set_xlabel("accuracy, %")
    right.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds])
    right.invert_yaxis()
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)


def _values_and_ends(estimates):
    """Returns values in %, and how far the ends of their intervals are from them."""
    value, low, high = 100 * np.array(list(estimates)).T
    return value, np.maximum([value - low, high - value], 0)
