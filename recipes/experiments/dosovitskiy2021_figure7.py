"""Figure 7 of Dosovitskiy et al. 2021, arXiv 2010.11929: filters and positions."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
The principal components of the embedding's filters of ViT-L/32 are plausible basis
functions of a patch; positions are more similar to closer ones, and to those of their
row and column; some heads attend to the whole image in the lowest layers already, and
the distance of attention grows with depth.
"""
IMAGES, FILTERS, SHOWN = 100, 12, 8


def measure(subject) -> dict:
    """Returns filters, similarities of positions, and distances of attention."""
    x, _ = subject.images("test", IMAGES)
    found = inspection.embeddings(subject.model, FILTERS)
    maps = inspection.attention_maps(subject.model, x, keep_weights=False)
    distances = [each.distance.mean(0).tolist() for each in maps.layers.values()]
    near, far = _by_distance(found.similarity)
    height, width = found.similarity.shape[:2]
    return {
        "filters": np.round(found.filters[:SHOWN].mean(-1), 4).tolist(),
        "share": float(np.sum(found.variance[:FILTERS])),
        "similarity": np.round(found.similarity, 3).tolist(),
        "near": near,
        "far": far,
        "row": _along(found.similarity, height, width),
        "distance": distances,
        "first": float(np.mean(distances[0])),
        "last": float(np.mean(distances[-1])),
    }


def _grid(height, width):
    return np.stack(np.mgrid[:height, :width], -1).reshape(-1, 2)


def _by_distance(similarity):
    """Returns the mean similarity of adjacent positions, and of the farthest half."""
    height, width = similarity.shape[:2]
    cells = _grid(height, width)
    distance = np.linalg.norm(cells[:, None] - cells[None], axis=-1)
    flat = similarity.reshape(height * width, -1)
    far = distance > np.median(distance)
    return float(flat[distance == 1].mean()), float(flat[far].mean())


def _along(similarity, height, width):
    """Returns how much more similar positions of one row or column are than others.

    Both at distances of 2 cells or more.
    """
    cells = _grid(height, width)
    steps = np.abs(cells[:, None] - cells[None])
    flat = similarity.reshape(height * width, -1)
    away = np.linalg.norm(steps, axis=-1) >= 2
    aligned = away & (steps.min(-1) == 0)
    return float(flat[aligned].mean() - flat[away & (steps.min(-1) > 0)].mean())


CLAIMS = (
    Claim(
        "similarity of positions: adjacent − farther than the median",
        1,
        "figure 7, centre: closer ones are more similar",
        lambda s: s["ViT"]["near"] - s["ViT"]["far"],
    ),
    Claim(
        "similarity of positions: one row or column − others, 2 cells or more apart",
        1,
        "figure 7, centre: rows and columns",
        lambda s: s["ViT"]["row"],
    ),
    Claim(
        "distance of attention, pixels: last layer − first",
        1,
        "figure 7, right: it grows with depth",
        lambda s: s["ViT"]["last"] - s["ViT"]["first"],
    ),
)
COLUMNS = (
    Column("variance in the first filters, %", lambda m: 100 * m["share"], 1),
    Column("similarity, adjacent", lambda m: m["near"]),
    Column("far", lambda m: m["far"]),
    Column("distance of attention, first layer, pixels", lambda m: m["first"], 1),
    Column("last layer", lambda m: m["last"], 1),
)


def draw(figure, results) -> None:
    """Plots filters, similarities and distances of the first seed."""
    first = results["ViT"][0]
    above, below = figure.subfigures(2, 1, height_ratios=(1, 2))
    pictures = np.array(first["filters"])
    largest = np.abs(pictures).max()
    for axis, picture in zip(above.subplots(1, len(pictures)), pictures, strict=True):
        axis.imshow(picture, cmap="RdBu", vmin=-largest, vmax=largest)
        axis.set(xticks=(), yticks=())
    left, right = below.subplots(1, 2)
    similarity = np.array(first["similarity"])
    height, width = similarity.shape[:2]
    tiles = similarity.transpose(0, 2, 1, 3).reshape(height * height, width * width)
    left.imshow(tiles, cmap="viridis", vmin=-1, vmax=1)
    left.set(xticks=(), yticks=(), title="similarity of positions")
    for layer, heads in enumerate(first["distance"], 1):
        right.scatter([layer] * len(heads), heads, color=measures.COLORS[0], s=18)
    top = 1.1 * np.max(first["distance"])
    right.set(xlabel="layer", ylabel="distance of attention, pixels", ylim=(0, top))
    right.set_xticks(range(1, len(first["distance"]) + 1))
    measures.tidy(right)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=trainings.vit("ViTL32"),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(9, 6),
)
