"""Figure 5 of Park and Kim 2022, arXiv 2202.06709: error against training loss."""

import dataclasses
import math

import numpy as np

from . import measures, spectra, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
On CIFAR-100 models with a stronger inductive bias (ResNet, ResNeXt, Swin, PiT, against
ViT) have both a lower test error and a lower negative log-likelihood on the training
images: a ViT does not overfit. With fewer images, too, both get worse together.
"""
MODELS = {"ViT": "ablation", "PiT": "PiT", "Swin": "Swin"}
MODELS |= {"ResNeXt": "ResNeXt", "ResNet": "twin"}
SHARES = (1.0, 0.25)


def subjects(settings) -> dict:
    """Returns the trainings of one seed; with fewer images as many epochs."""
    found = {}
    for share in sorted(settings.shares or SHARES, reverse=True):
        for label, model in MODELS.items():
            config = trainings.of(settings, model, share=share)
            steps = config.steps and max(1, round(share * config.steps))
            found[f"{label}, {share:.12g}"] = dataclasses.replace(config, steps=steps)
    return found


def _all_images(seed):
    """Returns {model: numbers} with the largest share."""
    most = next(iter(seed)).split(", ")[1]
    return {model: seed[f"{model}, {most}"] for model in MODELS}


def _correlation(seed):
    """Returns that of log training loss and test error over the models."""
    rows = _all_images(seed).values()
    if any(row["nll"] == 0 for row in rows):
        return math.nan
    pairs = [(math.log(row["nll"]), 1 - row["accuracy"]) for row in rows]
    return float(np.corrcoef(np.transpose(pairs))[0, 1])


def _fewer(seed):
    """Returns log₁₀ of the ViT's training loss with the fewest images over all."""
    labels = [label for label in seed if label.startswith("ViT, ")]
    if len(labels) == 1:
        return math.nan
    return measures.log_ratio("nll", labels[-1], labels[0])(seed)


CLAIMS = (
    Claim(
        "training loss, log₁₀: ViT − ResNet",
        1,
        "figure 5, left: the ViT's is higher",
        lambda s: measures.log_ratio("nll", "ViT", "ResNet")(_all_images(s)),
    ),
    Claim(
        "test error, points: ViT − ResNet",
        1,
        "figure 5, left",
        lambda s: measures.points("accuracy", "ResNet", "ViT")(_all_images(s)),
    ),
    Claim(
        "correlation of log training loss and test error over the models",
        1,
        "figure 5, left: both are lower with a stronger bias",
        _correlation,
    ),
    Claim(
        "training loss of the ViT, log₁₀: fewest images − all",
        1,
        "figure 5, right",
        _fewer,
    ),
)
COLUMNS = (
    Column("test error, %", lambda m: 100 * (1 - m["accuracy"]), 1),
    Column("training loss", lambda m: m["nll"], 4),
)


def draw(figure, results) -> None:
    """Plots a point per training: test error over training loss."""
    axis = figure.subplots()
    labels = [*dict.fromkeys(label.split(", ")[1] for label in results)]
    for label, rows in results.items():
        model, share = label.split(", ")
        place = [*MODELS].index(model)
        axis.scatter(
            [row["nll"] for row in rows],
            [100 * (1 - row["accuracy"]) for row in rows],
            color=measures.COLORS[place],
            marker=measures.MARKERS[labels.index(share)],
            s=24,
        )
        if share == labels[0]:
            axis.scatter([], [], color=measures.COLORS[place], label=model)
    for marker, share in zip(measures.MARKERS, labels, strict=False):
        label = f"{float(share):.0%} of the images"
        axis.scatter([], [], color="gray", marker=marker, label=label)
    axis.set(xlabel="training loss", ylabel="test error, %", xscale="log")
    axis.legend(frameon=False)
    measures.tidy(axis)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=spectra.measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(7, 4.5),
    options=("shares",),
    notes="With fewer images the number of epochs is the same. "
    "The training loss is that of at most 500 training images. ",
)
