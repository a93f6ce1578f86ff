"""Spectra of mini-batches early in training: figures 4, 6 and 7 of arXiv 2202.06709."""

import dataclasses

import numpy as np

from kerasvit import inspection

from . import measures
from .experiment import Column, Experiment

BATCHES, BATCH = 12, 16
EIGENVALUES = 5
EARLY = 0.1  # share of the steps after which the paper looks at the Hessian

NOTES = (
    "Eigenvalues are the five of largest magnitude of the Hessian of each of "
    f"{BATCHES} mini-batches of {BATCH} training images, without L2, after a training "
    f"of {EARLY:.0%} of the steps, whose schedule ends there. "
)


def measure(subject) -> dict:
    """Returns accuracy and loss; of an early training the eigenvalues instead."""
    x, y = subject.images("train")
    logits = subject.model.predict(x, verbose=0)
    found = {
        "accuracy": subject.result["accuracy"],
        "nll": float(subject.loss()(y, logits)),
    }
    if not subject.label.endswith("early"):
        return found
    size = min(BATCH, len(x))
    cut = [slice(i, i + size) for i in range(0, len(x) - size + 1, size)][:BATCHES]
    batches = [(x[part], y[part]) for part in cut]
    spectrum = inspection.batch_spectrum(
        subject.model, batches, subject.loss(), k=EIGENVALUES, tolerance=0.05
    )
    values = spectrum.values.ravel()
    return {
        **found,
        "values": np.round(values, 5).tolist(),
        "negative": float(np.mean(values < 0)),
        "largest": float(np.mean(spectrum.values.max(1))),
    }


def early(found: dict) -> dict:
    """Returns trainings and the same with fewer steps, "ViT" and "ViT, early"."""
    parts = {}
    for label, config in found.items():
        # A tenth of the warm-up too: it is at most a fifth of the training.
        short = {
            name: number and max(1, round(EARLY * number))
            for name in ("steps", "epochs")
            for number in [getattr(config, name)]
        }
        parts[label] = config
        parts[f"{label}, early"] = dataclasses.replace(config, **short)
    return parts


def negative(one: str, other: str):
    """Returns a function of a seed: difference of negative eigenvalues, in points."""
    return measures.points("negative", f"{one}, early", f"{other}, early")


COLUMNS = (
    Column("test error, %", lambda m: 100 * (1 - m["accuracy"]), 1),
    Column("training loss", lambda m: m["nll"], 4),
    Column(
        "negative eigenvalues, %",
        lambda m: 100 * m["negative"] if "negative" in m else None,
        1,
    ),
    Column("largest eigenvalue, mean of the batches", lambda m: m.get("largest"), 1),
)


def draw(figure, results) -> None:
    """Plots errors of the trainings, and the distribution of early eigenvalues."""
    left, right = figure.subplots(1, 2)
    whole = {k: rows for k, rows in results.items() if not k.endswith("early")}
    measures.draw_points(left, whole, COLUMNS[0])
    draw_eigenvalues(right, results, whole)


def draw_eigenvalues(axis, results, labels) -> None:
    """Plots the distribution of the eigenvalues of early trainings."""
    for place, label in enumerate(labels):
        rows = results[f"{label}, early"]
        values = np.concatenate([row["values"] for row in rows])
        color = measures.COLORS[place % len(measures.COLORS)]
        axis.hist(values, bins=40, density=True, histtype="step", color=color)
        axis.plot([], [], color=color, label=label)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set(xlabel="eigenvalue", ylabel="density", yscale="log")
    axis.legend(frameon=False)
    measures.tidy(axis)


def experiment(paper: str, subjects, claims, notes: str = "") -> Experiment:
    """Returns the experiment with these measures; arguments as for `Experiment`."""
    return Experiment(
        paper=paper,
        subjects=subjects,
        measure=measure,
        claims=claims,
        columns=COLUMNS,
        draw=draw,
        size=(10, 4.5),
        notes=NOTES + notes,
    )
