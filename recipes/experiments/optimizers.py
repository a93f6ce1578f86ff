"""SGD, AdamW and SAM at several learning rates: speed and final accuracy."""

import numpy as np

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
No paper has this figure; it is the plan of a lecture on SAM. The claims are those of
the papers: transformers need AdamW (arXiv 2010.11929 trains with Adam, 2106.01548 with
AdamW), ResNets are trained with SGD, and SAM gains accuracy at a slower training loss
(2106.01548, table 1 and figure 2).
"""
RATES = {"SGD": (0.1, 0.3, 1.0), "AdamW": (2e-3, 6e-3, 2e-2)}
DECAYS = {"SGD": 0.01, "AdamW": 0.1}
BASES = {"ViT": "AdamW", "ResNet": "SGD"}  # of SAM, as in arXiv 2106.01548
KINDS = ("SGD", "AdamW", "SAM")
THRESHOLD = 0.5  # the steps until the training loss is below are counted


def subjects(settings) -> dict:
    """Returns the trainings of one seed, for each model, optimizer and rate."""
    found = {}
    for model, base in BASES.items():
        for kind in KINDS:
            optimizer = base if kind == "SAM" else kind
            for rate in RATES[optimizer]:
                found[f"{model} {kind} {rate:g}"] = trainings.of(
                    settings,
                    model,
                    sam=kind == "SAM",
                    optimizer=optimizer.lower(),
                    learning_rate=rate,
                    weight_decay=DECAYS[optimizer],
                )
    return found


def measure(subject) -> dict:
    """Returns accuracies, losses, and the steps until the loss is low."""
    history = subject.result["history"]
    losses = [logs["loss"] for logs in history]
    between = subject.config.steps // len(losses) if subject.config.steps else 1
    below = np.flatnonzero(np.array(losses) < THRESHOLD)
    return {
        "accuracy": subject.result["accuracy"],
        "val_accuracy": history[-1]["val_accuracy"],
        "losses": losses,
        "steps": (int(below[0]) + 1) * between if len(below) else None,
        "cpu_seconds_of_training": subject.result["cpu_seconds"],
    }


def chosen(seed, model, kind):
    """Returns the numbers at the rate with the best validation accuracy of a seed."""
    found = [
        each for label, each in seed.items() if label.startswith(f"{model} {kind} ")
    ]
    return max(found, key=lambda each: each["val_accuracy"])


def _gain(model, kind, other):
    """Returns a function of a seed: how much more accurate a kind is, in points."""

    def gain(seed):
        first, second = (chosen(seed, model, each) for each in (kind, other))
        return 100 * (first["accuracy"] - second["accuracy"])

    return gain


def _slower(seed):
    """Returns log₁₀ of the ViT's loss half-way: SAM − AdamW."""
    losses = (chosen(seed, "ViT", kind)["losses"] for kind in ("SAM", "AdamW"))
    sam, adamw = (each[len(each) // 2] for each in losses)
    return float(np.log10(sam / adamw))


CLAIMS = (
    Claim(
        "accuracy of the ViT, points: AdamW − SGD",
        1,
        "ViTs are trained with Adam or AdamW",
        _gain("ViT", "AdamW", "SGD"),
    ),
    Claim(
        "accuracy of the ViT, points: SAM − AdamW",
        1,
        "arXiv 2106.01548, table 1: 79.9 − 74.6",
        _gain("ViT", "SAM", "AdamW"),
    ),
    Claim(
        "accuracy of the ResNet, points: SAM − SGD",
        1,
        "arXiv 2106.01548, table 2: +0.7 to +2.4",
        _gain("ResNet", "SAM", "SGD"),
    ),
    Claim(
        "log₁₀ of the ViT's training loss half-way: SAM − AdamW",
        1,
        "arXiv 2106.01548, figure 2: higher training error",
        _slower,
    ),
)
COLUMNS = (
    Column(f"steps until training loss < {THRESHOLD:g}", lambda m: m["steps"], 0),
    Column("CPU seconds of the training", lambda m: m["cpu_seconds_of_training"], 0),
    Column("final training loss", lambda m: m["losses"][-1], 4),
    Column("validation accuracy, %", lambda m: 100 * m["val_accuracy"], 1),
    measures.ACCURACY,
)


def draw(figure, results) -> None:
    """Plots test accuracies over the rates, and training losses at the best rates."""
    axes = figure.subplots(2, 2)
    for (left, right), model in zip(axes, BASES, strict=True):
        for place, kind in enumerate(KINDS):
            name = f"{model} {kind} "
            found = {k: rows for k, rows in results.items() if k.startswith(name)}
            rates = [float(label.removeprefix(name)) for label in found]
            accuracies = np.transpose(
                [[100 * row["accuracy"] for row in rows] for rows in found.values()]
            )
            measures.draw_line(left, rates, accuracies, kind, place)
            best = max(
                found.values(), key=lambda r: np.mean([x["val_accuracy"] for x in r])
            )
            losses = np.array([row["losses"] for row in best])
            share = np.linspace(0, 1, losses.shape[1] + 1)[1:]
            measures.draw_line(right, share, losses, kind, place)
        left.set(xscale="log", title=model, ylabel="test accuracy, %")
        right.set(yscale="log", title=model, ylabel="training loss, best rate")
    axes[1][0].set_xlabel("learning rate")
    axes[1][1].set_xlabel("share of the steps")
    axes[0][0].legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 7),
    notes="SAM has rho 0.1 and the paper's optimizer; steps are counted in tens. CPU "
    "seconds contain compilation; those of trainings that other experiments share are "
    "of the first of these. ",
)
