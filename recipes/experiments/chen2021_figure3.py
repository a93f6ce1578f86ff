"""Figure 3 of Chen et al. 2021, arXiv 2106.01548: attention maps with SAM, without."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
The attention of ViT-S/16 trained with SAM contains visible segmentation information of
the images, that of plain training does not. The paper shows pictures and no number.
"""
IMAGES = 200


def measure(subject) -> dict:
    """Returns how well the hottest patches of the last layer cover the objects."""
    x, _ = subject.images("test", IMAGES)
    maps = inspection.attention_maps(subject.model, x, keep_weights=False)
    masks = measures.objects(x)
    heat = next(reversed(maps.layers.values())).heat
    heads = inspection.segmentation_score(heat, masks)
    found = {
        "overlap": float(inspection.segmentation_score(maps.heat, masks).mean()),
        "best_head": float(heads.mean(0).max()),
        "uniform": float(
            inspection.segmentation_score(np.ones_like(maps.heat), masks).mean()
        ),
        "accuracy": subject.result["accuracy"],
    }
    return found | measures.pictures(x, maps.heat)


CLAIMS = (
    Claim(
        "overlap of the hottest patches with the object, points: SAM − without",
        1,
        "figure 3: segments are visible with SAM only",
        lambda s: 100 * (s["ViT-SAM"]["overlap"] - s["ViT"]["overlap"]),
    ),
    Claim(
        "the same of the best head, points: SAM − without",
        1,
        "figure 3",
        lambda s: 100 * (s["ViT-SAM"]["best_head"] - s["ViT"]["best_head"]),
    ),
)
COLUMNS = (
    Column("overlap, mean of the heads, %", lambda m: 100 * m["overlap"], 1),
    Column("best head, %", lambda m: 100 * m["best_head"], 1),
    Column("uniform attention, %", lambda m: 100 * m["uniform"], 1),
    measures.ACCURACY,
)


def draw(figure, results) -> None:
    """Plots images, and the attention of the last layer of the first seed."""
    first = next(iter(results.values()))[0]
    rows = {"image": (first["images"], "gray", None)} | {
        label: (found[0]["heat"], "viridis", _top(results))
        for label, found in results.items()
    }
    measures.draw_rows(figure, rows)


def _top(results):
    """Returns the end of the colour scale that all models share."""
    return max(np.max(found[0]["heat"]) for found in results.values())


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: trainings.pairs(
        settings, "ViT", full={"model": "ViTS16"}
    ),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(9, 5),
    notes=measures.OVERLAP,
)
