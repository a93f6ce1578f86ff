"""Decides whether SAM helps a small ViT and a small Mixer with few training images.

    python -m recipes.benchmarks.study claim               # or continues

As in Table 4 of arXiv 2106.01548, the models are trained on shares of the same images,
for the same number of steps. For each model and share, rho is that of the radii which
gives the best accuracy on the validation images, with a seed that is not used again.
Then pairs of trainings with and without SAM, which start with the same weights and take
the same batches, are compared on the test images.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import keras
import numpy as np
from command import command_line
from pretrain import PRESETS, pretrain
from training import training_data
from training.curves import save_figure

from . import runs
from .runs import measure
from .settings import Claim

MODELS = {"ViT": "study_vit", "Mixer": "study_mixer"}
TUNING_SEED = 100  # above all others: `seeds` is at most 100
SHARE_SEED = 0  # of the training images, the same for all seeds of the trainings
SAVE_MINUTES = 0.5
KINDS = ("without SAM", "with SAM")
QUANTITIES = ("accuracy", "loss", "sharpness")
CONFIDENCE = 0.95
# Colours of Okabe and Ito, which colour-blind readers can tell apart.
STYLES = {"ViT": ("#0072B2", "o"), "Mixer": ("#D55E00", "s")}


@dataclasses.dataclass(frozen=True)
class Training:
    """One training of the study.

    Args:
        model: Key of `MODELS`.
        share: Share of the training images.
        kind: "without SAM", "with SAM" and the chosen rho, or "tuning".
        rho: Radius, for "tuning".
        seed: Seed of weights and order.
    """

    model: str
    share: float
    kind: Literal["without SAM", "with SAM", "tuning"]
    seed: int
    rho: float = 0.0

    @property
    def name(self) -> str:
        """Name of its folder."""
        kind = f"rho {self.rho:g}" if self.kind == "tuning" else self.kind
        name = f"{self.model} {self.share:g} {kind} seed {self.seed}"
        return name.replace(" ", "_")


def trainings(study: Claim) -> list[Training]:
    """Returns all trainings: first those for rho, then a pair for each seed."""
    settings = [(model, share) for model in MODELS for share in study.shares]
    tuning = [each for setting in settings for each in tuned(study, *setting)]
    return tuning + [
        Training(*setting, kind, seed)
        for seed in range(study.seeds)
        for setting in settings
        for kind in KINDS
    ]


def tuned(study: Claim, model: str, share: float) -> list[Training]:
    """Returns the trainings from which rho is chosen."""
    return [Training(model, share, "tuning", TUNING_SEED, rho) for rho in study.rhos]


def choose_rho(study: Claim, model: str, share: float, folder: Path) -> float:
    """Returns the rho with the best validation accuracy, then loss, then the least."""

    def score(each):
        found = runs.result_of(folder, each.name)
        return found["val_accuracy"], -found["val_loss"], -each.rho

    return max(tuned(study, model, share), key=score).rho


def config_of(study: Claim, each: Training, rho: float, whole: int, folder: Path):
    """Returns the `pretrain.Config` of a training.

    Args:
        study: Settings.
        each: Training.
        rho: Radius of SAM; 0: without.
        whole: Number of training images of the dataset.
        folder: Folder of the study.
    """
    return dataclasses.replace(
        PRESETS[MODELS[each.model]],
        dataset=study.dataset,
        data=study.data,
        share=each.share * min(study.images, whole) / whole,
        share_seed=SHARE_SEED,
        steps=study.steps,
        validations=1,
        rho=rho,
        seed=each.seed,
        save_minutes=SAVE_MINUTES,
        out=str(folder / each.name),
    )


def train(study: Claim, each: Training, whole: int, folder: Path) -> dict:
    """Trains, or continues, and returns the measurements."""
    keras.utils.clear_session()
    rho = each.rho
    if each.kind == "with SAM":
        rho = choose_rho(study, each.model, each.share, folder)
    config = config_of(study, each, rho, whole, folder)
    found = pretrain(config)
    last = found["history"][-1]
    validation = {key: last[key] for key in ("val_accuracy", "val_loss")}
    if each.kind == "tuning":  # its test images are not looked at
        return {"rho": rho, **validation}
    measured = {"accuracy": found["accuracy"], **measure(config, study.curved_images)}
    return {"rho": rho, **validation, **measured}


def tasks_of(study: Claim, whole: int, folder: Path) -> dict[str, runs.Task]:
    """Returns the trainings of the study; those with SAM need the chosen rho."""
    found = {}
    for each in trainings(study):
        needs = tuned(study, each.model, each.share) if each.kind == "with SAM" else []
        work = functools.partial(train, study, each, whole, folder)
        found[each.name] = runs.Task(work, [tuning.name for tuning in needs])
    return found


def run(study: Claim) -> dict:
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
        whole = len(dataset.train)
        images = min(study.images, whole)
        counts = {
            share: len(dataset.of_share(share * images / whole, SHARE_SEED).train)
            for share in study.shares
        }
    tasks = functools.partial(tasks_of, study, whole)
    result = runs.train("claim", study, dataset, tasks)
    result["rows"] = rows = rows_of(study, counts, result["measured"])
    if not rows:
        raise command_line.BadInput(
            "`summary`: two pairs of trainings with a model and a share must be "
            "finished, for an interval."
        )
    page = markdown(result)
    runs.write("claim", study, result, page, lambda path: draw(rows, path))
    return result


def rows_of(study: Claim, counts: dict, measured: dict) -> list[dict]:
    """Returns the compared trainings of each model and share with two pairs or more.

    Args:
        study: Settings.
        counts: {share: number of training images}.
        measured: {name of a training: its measurements} of the finished trainings.
    """
    rows = []
    for model in MODELS:
        for share, count in counts.items():
            pairs = [
                [Training(model, share, kind, seed).name for kind in KINDS]
                for seed in range(study.seeds)
            ]
            found = [
                [measured[name] for name in pair]
                for pair in pairs
                if measured.keys() >= set(pair)
            ]
            if len(found) < 2:
                continue
            values = dict(zip(KINDS, zip(*found, strict=True), strict=True))
            rho = found[0][1]["rho"]
            row = {"model": model, "share": share, "images": count, "rho": rho}
            rows.append({**row, **compare(values)})
    return rows


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
