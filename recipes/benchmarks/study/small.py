"""Reproduces Table 1 of arXiv 2106.01548 with small models: the effect of SAM.

    python -m recipes.benchmarks.study              # 1,000 images of MNIST
    python -m recipes.benchmarks.study --help

The same ViT, Mixer and BiT are trained from scratch with and without SAM, for several
seeds, with the presets `study_…` of `pretrain.py`. The study measures the test
accuracy, the loss on the training images, and the largest eigenvalue of its Hessian.
"""

import dataclasses
import json
from pathlib import Path

from command import command_line
from devices import devices
from pretrain import PRESETS, pretrain
from rich.table import Table
from training import run_folder, training_data
from training.curves import COLORS, save_figure
from training.progress import console
from training.run_folder import write_json

from .runs import compilation_cache, mean_and_deviation, measure
from .settings import Study

MODELS = {"ViT": "study_vit", "Mixer": "study_mixer", "BiT": "study_bit"}
QUANTITIES = {
    "accuracy": "test accuracy, %",
    "loss": "training loss",
    "sharpness": "largest eigenvalue",
}


def run(study: Study) -> dict:
    """Trains and measures all models, or the remaining ones of an interrupted study.

    Returns:
        The content of result.json.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    with command_line.checking_input():
        command_line.check(study)
        dataset = training_data.find(study.dataset, study.data)
        folder = run_folder.claim_folder(study, dataset, devices.ONE, "study-")
    measured = {}
    with compilation_cache(folder / "programs"):
        for model, preset in MODELS.items():
            for sam in COLORS:
                measured[f"{model} {sam}"] = [
                    _train_and_measure(study, PRESETS[preset], sam, seed, folder)
                    for seed in range(study.seeds)
                ]
    result = {
        "measured": measured,
        "folder": str(folder),
        "images": dataset.counts,
        "test": dataset.test_name,
    }
    draw(measured, folder / "study.png")
    write_json(folder / "result.json", result)
    return result


def _train_and_measure(study, preset, sam, seed, folder):
    """Returns the measurements of one training; runs it if it is not finished."""
    folder = folder / f"{preset.model}_{sam.replace(' ', '_')}_{seed}"
    file = folder / "measured.json"
    if file.exists():
        return json.loads(file.read_text())
    config = dataclasses.replace(
        preset,
        dataset=study.dataset,
        data=study.data,
        epochs=study.epochs or preset.epochs,
        rho=preset.rho if sam == "with SAM" else 0.0,
        seed=seed,
        out=str(folder),
    )
    trained = pretrain(config)
    measured = {"accuracy": trained["accuracy"], **measure(config, study.curved_images)}
    write_json(file, measured)
    return measured


def draw(measured: dict, path: Path) -> None:
    """Plots the measurements: a point per training and a line at the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 4), layout="constrained")
    for axis, (key, label) in zip(axes, QUANTITIES.items(), strict=True):
        for place, (name, trainings) in enumerate(measured.items()):
            model, sam = name.split(" ", 1)
            values = _values(trainings, key)
            color = COLORS[sam]
            axis.scatter([place] * len(values), values, color=color, s=18, zorder=2)
            mean, _ = mean_and_deviation(values)
            label_once = sam if model == next(iter(MODELS)) else None
            axis.hlines(mean, place - 0.3, place + 0.3, color=color, label=label_once)
        axis.set_xticks([0.5, 2.5, 4.5], MODELS)
        axis.set_title(label, fontsize="medium")
        axis.grid(alpha=0.3, axis="y")
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_yscale("log")
    axes[0].legend(frameon=False)
    save_figure(figure, path)


def _values(trainings, key):
    return [each[key] * (100 if key == "accuracy" else 1) for each in trainings]


def report(study: Study, result: dict) -> None:
    """Prints a table of mean ± standard deviation over the seeds."""
    images, measured = result["images"], result["measured"]
    count = len(next(iter(measured.values())))
    table = Table(
        title=f"{images['train']:,} training and {images['test']:,} images of "
        f"{result['test']}, {count} seeds: mean ± standard deviation"
    )
    for column in ("", *QUANTITIES.values()):
        table.add_column(column, justify="right")
    digits = {"accuracy": 2, "loss": 4, "sharpness": 2}
    for name, trainings in measured.items():
        row = []
        for key in QUANTITIES:
            mean, deviation = mean_and_deviation(_values(trainings, key))
            row.append(f"{mean:.{digits[key]}f} ± {deviation:.{digits[key]}f}")
        table.add_row(name, *row)
    console.print(table)
    console.print(f"Picture: {result['folder']}/study.png", soft_wrap=True)
