"""Draws the accuracy on corrupted images, over severities and by corruption."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from training.curves import save_figure

from .kinds import KINDS, SEVERITIES
from .robustness import Summary

# Okabe and Ito's colours, which the colour-blind can tell apart, and markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


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
