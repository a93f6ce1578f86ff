"""Figure 6 of Dosovitskiy et al. 2021, arXiv 2010.11929: attention on images."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
Attention rollout from the class token to the pixels, of examples: the model attends to
regions of the image that matter for its class. The paper shows pictures and no number.
"""
IMAGES = 200


def measure(subject) -> dict:
    """Returns how much of the rollout is on the objects, and how it covers them."""
    x, _ = subject.images("test", IMAGES)
    heat = inspection.attention_maps(subject.model, x, keep_weights=False).rollout
    masks = measures.objects(x)
    uniform = np.ones_like(heat)
    found = {
        "on_object": _share(heat, masks),
        "of_pixels": _share(uniform, masks),
        "overlap": float(inspection.segmentation_score(heat, masks).mean()),
        "uniform": float(inspection.segmentation_score(uniform, masks).mean()),
        "accuracy": subject.result["accuracy"],
    }
    return found | measures.pictures(x, heat)


def _share(heat, masks):
    """Returns the mean share of the heat that is on the objects."""
    count, height, width = heat.shape
    sides = masks.shape[1] // height, masks.shape[2] // width
    masks = masks[:, : height * sides[0], : width * sides[1]]
    cells = masks.reshape(count, height, sides[0], width, sides[1]).mean((2, 4))
    return float(np.mean((heat * cells).sum((1, 2)) / heat.sum((1, 2))))


CLAIMS = (
    Claim(
        "attention on the object, points: rollout − uniform attention",
        1,
        "figure 6: it is on what matters",
        lambda s: 100 * (s["ViT"]["on_object"] - s["ViT"]["of_pixels"]),
    ),
    Claim(
        "overlap with the object, points: rollout − uniform attention",
        1,
        "figure 6",
        lambda s: 100 * (s["ViT"]["overlap"] - s["ViT"]["uniform"]),
    ),
)
COLUMNS = (
    Column("attention on the object, %", lambda m: 100 * m["on_object"], 1),
    Column("uniform attention, %", lambda m: 100 * m["of_pixels"], 1),
    Column("overlap, %", lambda m: 100 * m["overlap"], 1),
    Column("of uniform attention, %", lambda m: 100 * m["uniform"], 1),
    measures.ACCURACY,
)


def draw(figure, results) -> None:
    """Shows images and the rollout of the first seed."""
    first = results["ViT"][0]
    measures.draw_rows(
        figure,
        {
            "image": (first["images"], "gray", None),
            "rollout": (first["heat"], "viridis", np.max(first["heat"])),
        },
    )


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=trainings.vit("ViTL16"),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(9, 3.5),
    notes=measures.OVERLAP,
)
