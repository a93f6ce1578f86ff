"""Draws the loss and the accuracy of a training."""

import itertools
from pathlib import Path

from training.quality import QUALITIES, quality_of
from training.run_folder import replace_file

COLORS = {"without SAM": "tab:gray", "with SAM": "tab:orange"}


def draw_curves(result: dict, path: Path) -> None:
    """Plots the loss, and accuracy if there is one, of a training over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    rounds = result["history"]
    steps, color = _steps_of_rounds(result), COLORS[result["training"]]
    quality = quality_of(rounds[0])
    quantities = ["loss", *([quality] if quality else [])]
    figure, axes = pyplot.subplots(
        1, len(quantities), figsize=(10, 4), layout="constrained", squeeze=False
    )
    axes = axes[0]
    for axis, quantity in zip(axes, quantities, strict=True):
        for key, line, part in (("", "o:", "training"), ("val_", "s-", "validation")):
            if key + quantity not in rounds[0]:  # the mAP of training images
                continue
            values = [logs[key + quantity] for logs in rounds]
            # Markers, because a line with one point is not visible.
            size = 4 if len(rounds) < 10 else 2
            axis.plot(steps, values, line, markersize=size, label=part, color=color)
        if kept := result.get("kept_round"):
            options = {"label": "kept", "color": color, "linestyle": "--"}
            axis.axvline(steps[kept - 1], linewidth=1, **options)
        first = 0
        for stage in result.get("stages", [])[:-1]:
            first += stage["rounds"] * stage["steps_between_validations"]
            axis.axvline(first, color="black", linewidth=0.8, linestyle=":")
        axis.set(xlabel="step", ylabel=QUALITIES.get(quantity, quantity))
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    if result.get("start"):
        options = {"label": "validation, before", "color": "black", "linestyle": "--"}
        axes[1].axhline(result["start"]["accuracy"], linewidth=1, **options)
    _logarithmic(axes[0])
    if quality:
        axes[1].yaxis.set_major_formatter(PercentFormatter(1.0))
    labels = axes[-1].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path)


def _steps_of_rounds(result):
    """Returns the number of finished steps after each round of all stages."""
    one = {"rounds": len(result["history"]), **result}
    stages = result.get("stages", [one])
    lengths = [
        stage["steps_between_validations"]
        for stage in stages
        for _ in range(stage["rounds"])
    ]
    return [*itertools.accumulate(lengths)]


def _logarithmic(axis):
    """Sets a logarithmic scale with labels such as 0.25 instead of 2.5e-01."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, value, position=None):
            return f"{value:g}" if super().__call__(value, position) else ""

    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(Plain())
    axis.yaxis.set_minor_formatter(Plain())


def save_figure(figure, path: Path) -> None:
    """Writes a figure atomically and closes it."""
    from matplotlib import pyplot

    unfinished = path.with_name(f".{path.name}")
    figure.savefig(unfinished, dpi=120, format="png")
    pyplot.close(figure)
    replace_file(unfinished, path)
