"""Figures 2 and 3 of Xiong et al. 2020, arXiv 2002.04745: pre-LN and post-LN."""

import dataclasses

import keras
import numpy as np
import pretrain

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
At the start of the training the gradients of a post-LN Transformer's last layers are
large: their norm does not depend on the number of layers L, while that of pre-LN falls
as 1 / √L (theorem 1). Post-LN therefore needs a warm-up of the learning rate, and
pre-LN does not. The paper trains Transformers for translation.
"""
BLOCKS = {"pre-LN": "pre", "post-LN": "post"}
DEPTHS = (2, 4, 8, 16)
IMAGES = 100
RATE = 6e-3
WARMUP = 0.2  # share of the steps


def subjects(settings) -> dict:
    """Returns the trainings of one seed: both blocks, with a warm-up and without."""
    found = {}
    for name, norm in BLOCKS.items():
        ends = {"pre": "", "post": "PostNorm"}
        model = {"model": f"ViTTi4CIFAR{ends[norm]}"} if settings.full else {}
        options = model or {"model_options": (f"norm={norm}",), "learning_rate": RATE}
        base = trainings.of(settings, "ablation", **options)
        steps = (
            base.warmup_steps if settings.full else max(1, round(WARMUP * base.steps))
        )
        for end, warmup in ((", warm-up", steps), (", none", 0)):
            options["warmup_steps"] = warmup
            found[name + end] = trainings.of(settings, "ablation", **options)
    return found


def measure(subject) -> dict:
    """Returns losses by step, and gradients of the last block before the training."""
    x, y = subject.images("train", IMAGES)
    config, classes = subject.config, subject.dataset.class_names
    norms = []
    for depth in DEPTHS:
        keras.utils.set_random_seed(subject.seed)
        options = (*(config.model_options or ()), f"depth={depth}")
        model = pretrain.build(
            dataclasses.replace(config, model_options=options), classes
        )
        head = {"head": "random", "seed": subject.seed}
        found = inspection.gradient_norms(
            model, x, y, subject.loss(), by="variable", **head
        )
        last = f"encoder_block_{depth - 1}/mlp/dense_1/kernel"
        norms.append(next(v for k, v in found.items() if k.endswith(last)))
    return {
        "gradients": norms,
        "slope": float(np.polyfit(np.log(DEPTHS), np.log(norms), 1)[0]),
        "loss": [logs["loss"] for logs in subject.result["history"]],
        "accuracy": subject.result["accuracy"],
    }


def _gain(seed, name):
    """Returns the accuracy with a warm-up minus that without, in points."""
    return measures.points("accuracy", f"{name}, warm-up", f"{name}, none")(seed)


CLAIMS = (
    Claim(
        "log gradient of the last MLP over log L, pre-LN",
        -1,
        "theorem 1: −1/2",
        lambda s: s["pre-LN, none"]["slope"],
    ),
    Claim(
        "the same slope: post-LN − pre-LN",
        1,
        "theorem 1: 0 − (−1/2)",
        lambda s: s["post-LN, none"]["slope"] - s["pre-LN, none"]["slope"],
    ),
    Claim(
        "test accuracy of post-LN, points: with warm-up − without",
        1,
        "figure 2: without it the training fails",
        lambda s: _gain(s, "post-LN"),
    ),
    Claim(
        "gain by the warm-up, points: post-LN − pre-LN",
        1,
        "pre-LN does not need it",
        lambda s: _gain(s, "post-LN") - _gain(s, "pre-LN"),
    ),
)
COLUMNS = (
    Column("slope of the gradient over L", lambda m: m["slope"]),
    Column("training loss at the end", lambda m: m["loss"][-1], 3),
    measures.ACCURACY,
)


def draw(figure, results) -> None:
    """Plots gradients over the number of blocks, and the training losses."""
    left, right = figure.subplots(1, 2)
    for place, name in enumerate(BLOCKS):
        values = [row["gradients"] for row in results[f"{name}, none"]]
        measures.draw_line(left, DEPTHS, values, name, place)
    left.set(xscale="log", yscale="log", xlabel="blocks L", ylabel="‖gradient‖")
    left.set_xticks(DEPTHS, DEPTHS)
    left.set_xticks([], minor=True)
    left.legend(frameon=False)
    for place, (label, rows) in enumerate(results.items()):
        losses = np.array([row["loss"] for row in rows])
        share = np.linspace(0, 1, losses.shape[1] + 1)[1:]
        measures.draw_line(right, share, losses, label, place)
    right.set(xlabel="share of the steps", ylabel="training loss", yscale="log")
    right.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
)
