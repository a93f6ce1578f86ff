"""Compares pairs of trainings with and without SAM: intervals, table and figure.

compare({"without SAM": […], "with SAM": […]})      # one pair per seed
"""

from pathlib import Path

import numpy as np
from training.curves import save_figure

from . import runs

KINDS = ("without SAM", "with SAM")
QUANTITIES = ("accuracy", "loss", "sharpness")
CONFIDENCE = 0.95
# Colours of Okabe and Ito, which colour-blind readers can tell apart.
STYLES = {"ViT": ("#0072B2", "o"), "Mixer": ("#D55E00", "s")}


def paired_difference(before, after) -> dict:
    """Returns mean and 95 % confidence interval of paired differences.

    The interval is that of Student's t distribution with n - 1 degrees of freedom.

    Args:
        before, after: Values (n,), n ≥ 2; the i-th of both are a pair.
    """
    from scipy import stats

    differences = np.subtract(after, before)
    count = len(differences)
    error = np.std(differences, ddof=1) / np.sqrt(count)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * error
    mean = np.mean(differences)
    return {
        "differences": differences.tolist(),
        "mean": float(mean),
        "low": float(mean - half),
        "high": float(mean + half),
    }


def compare(values: dict[str, list[dict]]) -> dict:
    """Returns values and paired differences, with SAM minus without, by quantity.

    Args:
        values: {kind: measurements of each seed}, for both `KINDS`.
    """
    found = {}
    for quantity in QUANTITIES:
        both = {kind: [each[quantity] for each in values[kind]] for kind in KINDS}
        found[quantity] = {**both, **paired_difference(*both.values())}
    accuracy = found["accuracy"]
    helps = (
        "yes"
        if accuracy["low"] > 0
        else "no: worse"
        if accuracy["high"] < 0
        else "not shown"
    )
    return {**found, "helps": helps}


def markdown(result: dict) -> str:
    """Returns the table, and sentences about what it shows and does not show.

    Args:
        result: Content of result.json.
    """
    settings, rows = result["settings"], result["rows"]
    lines = [
        "| model | training images | pairs | rho "
        "| test accuracy without SAM, % | with SAM, % "
        "| difference, points [95 % interval] | SAM helps "
        "| training loss without, with | largest eigenvalue without, with |",
        "|---|" + "---:|" * 6 + "---|" + "---:|" * 2,
    ]
    for row in rows:
        accuracy = row["accuracy"]
        means = {
            quantity: [np.mean(row[quantity][kind]) for kind in KINDS]
            for quantity in QUANTITIES
        }
        plain, sam = (
            f"{100 * np.mean(accuracy[kind]):.2f} ± "
            f"{100 * np.std(accuracy[kind], ddof=1):.2f}"
            for kind in KINDS
        )
        cells = (
            row["model"],
            f"{row['images']:,}",
            str(len(accuracy["differences"])),
            f"{row['rho']:g}",
            plain,
            sam,
            f"{100 * accuracy['mean']:+.2f} [{100 * accuracy['low']:+.2f}, "
            f"{100 * accuracy['high']:+.2f}]",
            row["helps"],
            "{:.4f}, {:.4f}".format(*means["loss"]),
            "{:.2f}, {:.2f}".format(*means["sharpness"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Trainings of {settings['steps']} steps, tested on "
        f"{result['images']['test']:,} images ({result['test']}). Accuracies "
        "are mean ± standard deviation. An interval is that of the mean paired "
        "difference, by Student's t distribution; if SAM had no effect, one in 20 "
        "would exclude 0. " + runs.state_of(result),
    ]
    if runs.is_complete(result):
        lines += ["", conclusion(rows)]
    return "\n".join(lines) + "\n"


def conclusion(rows: list[dict]) -> str:
    """Returns for which models and numbers of images SAM helps, and for which not."""
    texts = {
        "yes": "SAM increases the test accuracy of",
        "not shown": "No effect of SAM on the test accuracy is shown for",
        "no: worse": "SAM decreases the test accuracy of",
    }
    sentences = []
    for helps, text in texts.items():
        named = [
            f"{row['model']} with {row['images']:,} images"
            for row in rows
            if row["helps"] == helps
        ]
        if named:
            sentences.append(f"{text} {', '.join(named)}.")
    return " ".join(sentences)


def draw(rows: list[dict], path: Path) -> None:
    """Plots the difference in accuracy over the number of images, with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    axis.axhline(0, color="black", linewidth=0.8)
    for place, (model, (color, marker)) in enumerate(STYLES.items()):
        found = [row for row in rows if row["model"] == model]
        # Beside each other, on the logarithmic axis.
        x = np.array([row["images"] for row in found]) * (0.97, 1.03)[place]
        accuracies = [row["accuracy"] for row in found]
        mean, low, high = (
            100 * np.array([each[key] for each in accuracies])
            for key in ("mean", "low", "high")
        )
        options = {"color": color, "marker": marker, "capsize": 4, "markersize": 7}
        axis.errorbar(x, mean, (mean - low, high - mean), label=model, **options)
        for at, each in zip(x, accuracies, strict=True):
            points = 100 * np.array(each["differences"])
            options = {"color": color, "marker": marker, "s": 12, "alpha": 0.4}
            axis.scatter([at * (0.96, 1.04)[place]] * len(points), points, **options)
    counts = sorted({row["images"] for row in rows})
    axis.set_xscale("log")
    axis.set_xticks(counts, [f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.set_xlabel("training images")
    axis.set_ylabel("test accuracy, with SAM − without, points")
    axis.set_title(
        "Mean and 95 % confidence interval; small points: pairs of trainings",
        fontsize="medium",
    )
    axis.grid(alpha=0.3, axis="y")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, path)
