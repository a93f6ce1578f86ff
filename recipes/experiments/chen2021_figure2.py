"""Figure 2 of Chen et al. 2021, arXiv 2106.01548: training error, active neurons."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
The Mixer has a lower training error than the ViT, but a lower test accuracy: it
overfits more. With SAM fewer neurons of the MLPs are active, above all in the first
layers.
"""


def measure(subject) -> dict:
    """Returns the training error by step, and the share of active neurons by block."""
    x, y = subject.images("train")
    history = subject.result["history"]
    shares = list(inspection.active_share(subject.model, x).values())
    # A Mixer's block has two MLPs: that of the channels is the second.
    mixes = subject.model.record["builder"] == "MLPMixer"
    logits = subject.model.predict(x, verbose=0)
    return {
        "error": [1 - logs["accuracy"] for logs in history],
        "train_error": float(np.mean(logits.argmax(-1) != y)),
        "nll": float(subject.loss()(y, logits)),
        "accuracy": subject.result["accuracy"],
        "active": shares[1::2] if mixes else shares,
    }


def _less(model):
    """Returns a function of a seed: active neurons with SAM minus without, points."""
    return lambda s: 100 * (s[f"{model}-SAM"]["active"][0] - s[model]["active"][0])


CLAIMS = (
    Claim(
        "log₁₀ of the training loss: Mixer − ViT",
        -1,
        "figure 2, left: the Mixer's error is lower",
        measures.log_ratio("nll", "Mixer", "ViT"),
    ),
    Claim(
        "test accuracy, points: Mixer − ViT",
        -1,
        "table 1: 66.4 − 74.6 = −8.2",
        measures.points("accuracy", "Mixer", "ViT"),
    ),
    Claim(
        "active neurons of the ViT's first MLP, points: SAM − without",
        -1,
        "figure 2, right: fewer with SAM",
        _less("ViT"),
    ),
    Claim(
        "active neurons of the Mixer's first channel MLP, points: SAM − without",
        -1,
        "figure 2, right: fewer with SAM",
        _less("Mixer"),
    ),
)
COLUMNS = (
    Column("training loss at the end", lambda m: m["nll"], 4),
    Column("training error at the end, %", lambda m: 100 * m["train_error"], 1),
    measures.ACCURACY,
    Column("active neurons, first MLP, %", lambda m: 100 * m["active"][0], 1),
    Column("last MLP, %", lambda m: 100 * m["active"][-1], 1),
)


def draw(figure, results) -> None:
    """Plots the training error over the training, and active neurons by depth."""
    left, right = figure.subplots(1, 2)
    for place, (label, rows) in enumerate(results.items()):
        errors = 100 * np.array([row["error"] for row in rows])
        share = np.linspace(0, 1, errors.shape[1] + 1)[1:]
        measures.draw_line(left, share, errors, label, place)
        active = 100 * np.array([row["active"] for row in rows])
        depth = np.arange(1, active.shape[1] + 1)
        measures.draw_line(right, depth, active, label, place)
    left.set(xlabel="share of the steps", ylabel="training error, %")
    right.set(xlabel="block", ylabel="active neurons, %", xticks=depth)
    left.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: trainings.pairs(settings, "ViT", "Mixer"),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
)
