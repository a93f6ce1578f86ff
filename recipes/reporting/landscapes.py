"""Measures of the loss along directions, on a plane and between two models."""

import numpy as np
from matplotlib.colors import LogNorm

from kerasvit import inspection

from .figures import lines, maps
from .measure import JOINT, Measure, Passes, either, without_derivatives

DIRECTIONS = 3
GRID = np.linspace(-1, 1, 21)
EXTENT = (-1.05, 1.05, -1.05, 1.05)  # of cells with the points in their centres
BETWEEN = np.linspace(-0.25, 1.25, 25)


def _landscape(subject):
    return {
        "alpha": GRID.tolist(),
        "loss": [
            _losses(subject, [_direction(subject, i)], [GRID])
            for i in range(DIRECTIONS)
        ],
    }


def _direction(subject, i):
    seed = subject.seed * DIRECTIONS + i
    return inspection.random_direction(subject.model, seed=seed)


def _losses(subject, directions, grid, path=None):
    options = {"path": path, "batch_size": subject.batch_size}
    found = inspection.landscape(
        *subject.data, directions=directions, grid=grid, **options
    )
    return found.loss.tolist()


def _show_landscape(results):
    series = {
        name: [(r["alpha"], loss) for loss in r["loss"]] for name, r in results.items()
    }
    caption = f"Loss along {DIRECTIONS} random directions"
    labels = ("α (multiples of the filters’ norms)", "loss")
    return [lines(caption, series, *labels)]


def _plane(subject, path):
    directions = [_direction(subject, i) for i in range(2)]
    loss = _losses(subject, directions, [GRID, GRID], path)
    return {"alpha": GRID.tolist(), "loss": loss}


def _show_plane(results):
    everything = np.concatenate([np.ravel(r["loss"]) for r in results.values()])
    low, high = max(everything.min(), 1e-4), everything.max()
    norm = LogNorm(low, high, clip=True)
    return [
        maps(
            f"Loss on a plane, {name}",
            {"": [np.maximum(np.array(r["loss"]).T[::-1], low)]},
            "loss",
            extent=EXTENT,
            axes=("α (multiples of the filters’ norms)", "β"),
            norm=norm,
        )
        for name, r in results.items()
    ]


def _between(subject, other):
    direction = inspection.direction_between(subject.model, other.model)
    alpha = BETWEEN
    if any("moving_variance" in path for path in direction):  # it stays above 0
        alpha = alpha[(alpha >= 0) & (alpha <= 1)]
    return {
        "names": [subject.name, other.name],
        "alpha": alpha.tolist(),
        "loss": _losses(subject, [direction], [alpha]),
    }


def _differing(subject, *others):
    if not others:
        return "It takes two models."
    shapes = [
        [(v.name, v.shape) for v in each.model.variables if "float" in v.dtype]
        for each in (subject, *others)
    ]
    if shapes[0] != shapes[1]:
        return "The two models have different architectures."
    if subject.images != others[0].images:
        return "The two models take different images or number the classes otherwise."
    return ""


def _show_between(results):
    found = results[JOINT]
    names = found["names"]
    label = f"α (0: {names[0]}, 1: {names[1]})"
    series = {"": [(found["alpha"], found["loss"])]}
    return [lines("Loss between the models", series, label, "loss", zero=True)]


MEASURES = {
    "landscape": Measure(
        _landscape,
        _show_landscape,
        lambda s: Passes(DIRECTIONS * len(GRID), 0, 1),
        without_derivatives,
    ),
    "between": Measure(
        _between,
        _show_between,
        lambda *s: Passes(len(BETWEEN), 0, 1),
        either(without_derivatives, _differing),
        jointly=True,
    ),
    "plane": Measure(
        _plane,
        _show_plane,
        lambda s: Passes(len(GRID) ** 2, 0, 1),
        without_derivatives,
        resumes=True,
    ),
}
