"""Table and figure of the study of optimizers.

joined(study, measurements)     # of the seeds of one model, optimizer and rate
"""

from pathlib import Path

import numpy as np
from training.curves import save_figure

from . import runs
from .measures import mean_and_deviation

KINDS = ("SGD", "AdamW", "SAM")
# Colours of Okabe and Ito, as in paired.py.
STYLES = {"SGD": ("#0072B2", "o"), "AdamW": ("#D55E00", "s"), "SAM": ("#009E73", "^")}


def joined(study, measurements: list[dict]) -> dict:
    """Returns the values of the seeds of one model, optimizer and rate.

    Args:
        study: Settings.
        measurements: Measurements of each finished seed.
    """
    keys = ("accuracy", "val_accuracy", "val_loss", "losses")
    between = measurements[0]["steps_between_losses"]
    return {
        **{key: [each[key] for each in measurements] for key in keys},
        "steps_between_losses": between,
        "reached": [
            steps_until(each["losses"], study.threshold, between)
            for each in measurements
        ],
    }


def steps_until(losses: list[float], limit: float, between: int) -> int | None:
    """Returns the step at which the mean loss is first below a limit, or None.

    Args:
        losses: Mean of each `between` steps.
        limit: Loss.
        between: Number of steps.
    """
    below = np.flatnonzero(np.array(losses) < limit)
    return (int(below[0]) + 1) * between if len(below) else None


def score(row: dict) -> tuple[float, float, float]:
    """Returns what a chosen rate has the highest of.

    They are the mean validation accuracy, then the lower loss, then the lower rate.
    """
    return np.mean(row["val_accuracy"]), -np.mean(row["val_loss"]), -row["rate"]


def markdown(result: dict) -> str:
    """Returns the table, and sentences about what it shows and does not show.

    Args:
        result: Content of result.json.
    """
    settings, images = result["settings"], result["images"]
    lines = [
        "| model | optimizer | learning rate | seeds "
        f"| steps until training loss < {settings['threshold']:g} "
        "| CPU seconds of them | CPU ms per step | final training loss "
        "| validation accuracy, % | test accuracy, % |",
        "|---|---|" + "---:|" * 8,
    ]
    lines += [_cells(row) for row in result["rows"]]
    lines += [
        "",
        f"{images['train']:,} training, {images['validation']:,} validation and "
        f"{images['test']:,} test images ({result['test']}); {settings['steps']} steps "
        "of 100 images. Accuracies and losses are mean ± standard deviation of the "
        "seeds; a training loss is the mean of "
        f"{result['rows'][0]['steps_between_losses']} steps, and for SAM that of the "
        "weights before the perturbation. **Bold**: the rate with the best validation "
        f"accuracy. SAM has rho {settings['rho']:g} and the optimizer in brackets. "
        + runs.state_of(result),
        *at_the_edge(result["rows"]),
    ]
    return "\n".join(lines) + "\n"


def at_the_edge(rows: list[dict]) -> list[str]:
    """Returns lines about chosen rates that are the least or largest that were tried.

    Args:
        rows: Rows of the result.
    """
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(f"{row['model']} with {row['kind']}", []).append(row)
    found = []
    for name, group in groups.items():
        rates = [row["rate"] for row in group]
        [chosen] = [row["rate"] for row in group if row["chosen"]]
        if chosen in (min(rates), max(rates)):
            found.append(f"{name} ({chosen:g})")
    if not found:
        return []
    text = "The chosen rate is the least or the largest that was tried, so that another"
    return ["", f"{text} may be better, for {', '.join(found)}."]


def _spread(values, digits):
    """Returns mean ± standard deviation; the mean only, of one value."""
    mean, deviation = (f"{each:.{digits}f}" for each in mean_and_deviation(values))
    return f"{mean} ± {deviation}" if len(values) > 1 else mean


def _cells(row):
    """Returns the row of a model, an optimizer and a rate."""
    reached, count, cpu = row["reached"], len(row["accuracy"]), row["cpu_ms_per_step"]
    steps = [step for step in reached if step]
    mean = float(np.mean(steps)) if len(steps) == count else None
    some = f"{len(steps)} of {count} seeds" if steps else "–"
    optimizer = f"SAM ({row['base']})" if row["kind"] == "SAM" else row["kind"]
    cells = (
        row["model"],
        optimizer,
        f"{row['rate']:g}",
        str(count),
        some if mean is None else f"{mean:.0f}",
        "–" if mean is None or cpu is None else f"{mean * cpu / 1000:.1f}",
        "–" if cpu is None else f"{cpu:.0f}",
        _spread([losses[-1] for losses in row["losses"]], 4),
        *(
            _spread([100 * each for each in row[key]], 2)
            for key in ("val_accuracy", "accuracy")
        ),
    )
    mark = "**" if row["chosen"] else ""
    return f"| {' | '.join(f'{mark}{cell}{mark}' for cell in cells)} |"


def draw(result: dict, path: Path) -> None:
    """Plots the training loss over the steps, and the accuracy over the rates."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = result["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = pyplot.subplots(
        2,
        len(models),
        figsize=(5 * len(models), 7.5),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for (above, below), model in zip(axes.T, models, strict=True):
        here = [row for row in rows if row["model"] == model]
        for row in here:
            _draw_losses(above, row)
        above.axhline(result["settings"]["threshold"], color="black", linewidth=0.6)
        above.set_yscale("log")
        above.set(xlabel="step", title=model)
        for kind in KINDS:
            _draw_accuracies(below, kind, [row for row in here if row["kind"] == kind])
        below.set_xscale("log")
        below.set(xlabel="learning rate")
        for axis in (above, below):
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("training loss, mean of the seeds")
    axes[1][0].set_ylabel("test accuracy, %")
    figure.suptitle(
        "Thick: the rate of the best validation accuracy, with the range of the seeds; "
        "thin: the others.\nBelow: mean and standard deviation; small points: seeds",
        fontsize="medium",
    )
    labels = axes[1][0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def _draw_losses(axis, row):
    color, _ = STYLES[row["kind"]]
    losses, between = np.array(row["losses"]), row["steps_between_losses"]
    steps = between * np.arange(1, losses.shape[1] + 1)
    if row["chosen"]:
        axis.fill_between(steps, losses.min(0), losses.max(0), color=color, alpha=0.2)
    options = {"linewidth": 2} if row["chosen"] else {"linewidth": 0.8, "alpha": 0.6}
    axis.plot(steps, losses.mean(0), color=color, **options)


def _draw_accuracies(axis, kind, rows):
    color, marker = STYLES[kind]
    # SAM is drawn beside the optimizer that it has.
    rates = np.array([row["rate"] for row in rows]) * (1.12 if kind == "SAM" else 1)
    values = [100 * np.array(row["accuracy"]) for row in rows]
    means = np.array([mean_and_deviation(each) for each in values]).reshape(-1, 2)
    options = {"color": color, "marker": marker, "capsize": 4, "markersize": 6}
    axis.errorbar(rates, means[:, 0], means[:, 1], label=kind, **options)
    for rate, each in zip(rates, values, strict=True):
        points = {"color": color, "marker": marker, "s": 10, "alpha": 0.4}
        axis.scatter([rate * 1.05] * len(each), each, **points)
