"""Figure 1 of Chen et al. 2021, arXiv 2106.01548: loss landscapes on one scale."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
The landscapes of ViT-B/16 and Mixer-B/16 are much sharper than that of ResNet-152, and
SAM smooths them. The paper draws the loss of ImageNet's training images along random
directions, which are normalised by filter (Li et al. 2018, arXiv 1712.09913).
"""
POINTS = 11  # along each direction
REACH = 0.5  # of the largest multiple of the directions
IMAGES = 200


def measure(subject) -> dict:
    """Returns the loss on a plane of two directions, and its change half-way out."""
    x, y = subject.images("train", IMAGES)
    grid = np.linspace(-REACH, REACH, POINTS)
    found = inspection.landscape(
        subject.model, x, y, subject.loss(), grid=(grid, grid), batch_size=IMAGES
    )
    distance = np.hypot(*np.meshgrid(grid, grid))
    ring = (distance > 0.4 * REACH) & (distance < 0.6 * REACH)
    center = float(found.loss[POINTS // 2, POINTS // 2])
    return {
        "loss": np.round(found.loss, 5).tolist(),
        "center": center,
        "change": float(np.abs(found.loss[ring] - center).mean()),
    }


CLAIMS = (
    Claim(
        "log₁₀ of the change of the loss: ViT − ResNet",
        1,
        "figure 1: sharper",
        measures.log_ratio("change", "ViT", "ResNet"),
    ),
    Claim(
        "log₁₀ of the change of the loss: Mixer − ResNet",
        1,
        "figure 1: sharper",
        measures.log_ratio("change", "Mixer", "ResNet"),
    ),
    Claim(
        "log₁₀ of the change of the loss: ViT-SAM − ViT",
        -1,
        "figure 1: smoother",
        measures.log_ratio("change", "ViT-SAM", "ViT"),
    ),
    Claim(
        "log₁₀ of the change of the loss: Mixer-SAM − Mixer",
        -1,
        "figure 1: smoother",
        measures.log_ratio("change", "Mixer-SAM", "Mixer"),
    ),
)
COLUMNS = (
    Column("training loss", lambda m: m["center"], 4),
    Column(f"change of the loss at {REACH / 2:g} of it", lambda m: m["change"]),
)


def draw(figure, results) -> None:
    """Plots the landscapes of the first seed, with one colour scale and one height."""
    planes = {label: np.array(rows[0]["loss"]) for label, rows in results.items()}
    top = float(np.quantile(np.concatenate([p.ravel() for p in planes.values()]), 0.95))
    grid = np.linspace(-REACH, REACH, POINTS)
    for place, (label, plane) in enumerate(planes.items()):
        axis = figure.add_subplot(1, len(planes), place + 1, projection="3d")
        heights = np.minimum(plane, top)
        axis.plot_surface(*np.meshgrid(grid, grid), heights, cmap="viridis", vmax=top)
        axis.set(title=label, zlim=(0, top), xticks=(-REACH, REACH))
        axis.set(yticks=(-REACH, REACH))


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: trainings.compared(settings, {"model": "BiTR152x1"}),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(14, 3.5),
    notes="The picture shows the first seed; all seeds have the same two directions. ",
)
