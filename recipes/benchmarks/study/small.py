"""Reproduces Table 1 of arXiv 2106.01548 with small models: the effect of SAM.

    python -m recipes.benchmarks.study              # 1,000 images of MNIST
    python -m recipes.benchmarks.study --help

The same ViT, Mixer and BiT are trained from scratch with and without SAM, for several
seeds, with the presets `study_…` of `pretrain.py`. The study measures the test
accuracy, the loss on the training images, and the largest eigenvalue of its Hessian.
"""

import dataclasses
import functools
from pathlib import Path

from command import command_line
from pretrain import PRESETS, pretrain
from training import training_data
from training.curves import COLORS, save_figure

from . import runs
from .runs import mean_and_deviation, measure
from .settings import Study

MODELS = {"ViT": "study_vit", "Mixer": "study_mixer", "BiT": "study_bit"}
QUANTITIES = {
    "accuracy": "test accuracy, %",
    "loss": "training loss",
    "sharpness": "largest eigenvalue",
}
DIGITS = {"accuracy": 2, "loss": 4, "sharpness": 2}


def name_of(preset: str, kind: str, seed: int) -> str:
    """Returns the name of a training and of its folder."""
    return f"{PRESETS[preset].model}_{kind.replace(' ', '_')}_{seed}"


def train(study: Study, preset: str, kind: str, seed: int, folder: Path) -> dict:
    """Trains, or continues, and returns the measurements."""
    settings = PRESETS[preset]
    config = dataclasses.replace(
        settings,
        dataset=study.dataset,
        data=study.data,
        epochs=study.epochs or settings.epochs,
        rho=settings.rho if kind == "with SAM" else 0.0,
        seed=seed,
        out=str(folder / name_of(preset, kind, seed)),
    )
    found = pretrain(config)
    return {"accuracy": found["accuracy"], **measure(config, study.curved_images)}


def tasks_of(study: Study, folder: Path) -> dict[str, runs.Task]:
    """Returns the trainings of the study."""
    each = [
        (preset, kind, seed)
        for preset in MODELS.values()
        for kind in COLORS
        for seed in range(study.seeds)
    ]
    return {
        name_of(*one): runs.Task(functools.partial(train, study, *one, folder))
        for one in each
    }


def run(study: Study) -> dict:
    """Trains and measures, or does what remains of an interrupted study.

    Returns:
        The content of result.json.

    Raises:
        command_line.BadInput: The input is wrong, raised before the training; or a
            training failed.
    """
    with command_line.checking_input():
        command_line.check(study)
        dataset = training_data.find(study.dataset, study.data)
    tasks = functools.partial(tasks_of, study)
    result = runs.train("study", study, dataset, tasks)
    result["rows"] = rows = rows_of(study, result["measured"])
    page = markdown(result)
    runs.write("study", study, result, page, lambda path: draw(rows, path))
    return result


def rows_of(study: Study, measured: dict) -> dict[str, dict[str, list[float]]]:
    """Returns {model, with or without SAM: {quantity: values of the finished seeds}}.

    Args:
        study: Settings.
        measured: {name of a training: its measurements} of the finished trainings.
    """
    rows = {}
    for model, preset in MODELS.items():
        for kind in COLORS:
            names = [name_of(preset, kind, seed) for seed in range(study.seeds)]
            found = [measured[name] for name in names if name in measured]
            if found:
                rows[f"{model} {kind}"] = {q: [f[q] for f in found] for q in QUANTITIES}
    for row in rows.values():
        row["accuracy"] = [100 * share for share in row["accuracy"]]
    return rows


def markdown(result: dict) -> str:
    """Returns the table, with mean ± standard deviation over the seeds.

    Args:
        result: Content of result.json.
    """
    images = result["images"]
    lines = [f"| | {' | '.join(QUANTITIES.values())} |", "|---|---|---|---|"]
    for name, row in result["rows"].items():
        cells = [name]
        for quantity, values in row.items():
            both = (f"{x:.{DIGITS[quantity]}f}" for x in mean_and_deviation(values))
            cells.append(" ± ".join(both))
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"{images['train']:,} training and {images['test']:,} test images "
        f"({result['test']}), {result['settings']['seeds']} seeds: mean ± standard "
        "deviation. " + runs.state_of(result),
    ]
    return "\n".join(lines) + "\n"


def draw(rows: dict, path: Path) -> None:
    """Plots the measurements: a point per training and a line at the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 4), layout="constrained")
    for axis, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
        for place, (name, row) in enumerate(rows.items()):
            model, kind = name.split(" ", 1)
            values, color = row[quantity], COLORS[kind]
            axis.scatter([place] * len(values), values, color=color, s=18, zorder=2)
            mean, _ = mean_and_deviation(values)
            label_once = kind if model == next(iter(MODELS)) else None
            axis.hlines(mean, place - 0.3, place + 0.3, color=color, label=label_once)
        axis.set_xticks([0.5, 2.5, 4.5], MODELS)
        axis.set_title(label, fontsize="medium")
        axis.grid(alpha=0.3, axis="y")
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_yscale("log")
    axes[0].legend(frameon=False)
    save_figure(figure, path)
