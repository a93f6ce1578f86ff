"""Table 3 of Chen et al. 2021, arXiv 2106.01548: sharpness of the components."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
| | embedding | MSA, token MLP | MLP, channel MLP | block 1 | 6 | 12 | whole |
|---|---|---|---|---|---|---|---|
| ViT-B/16 | 300.4 | 179.8 | 281.4 | 44.4 | 32.4 | 26.9 | 738.8 |
| ViT-B/16-SAM | 3.8 | 8.5 | 9.6 | 1.7 | 1.7 | 1.5 | 20.9 |
| Mixer-B/16 | 1042.3 | 95.8 | 417.9 | 239.3 | 41.2 | 5.1 | 1644.4 |
| Mixer-B/16-SAM | 18.2 | 1.4 | 9.5 | 4.0 | 1.1 | 0.3 | 22.5 |

| | ‖w‖ | ‖a‖ of block 1 | of block 6 | of block 12 |
|---|---|---|---|---|
| ViT-B/16 | 269.3 | 104.9 | 104.3 | 138.1 |
| ViT-B/16-SAM | 353.8 | 117.0 | 120.3 | 97.2 |
| Mixer-B/16 | 197.6 | 96.7 | 135.1 | 74.9 |
| Mixer-B/16-SAM | 389.9 | 110.9 | 176.0 | 216.1 |
"""
PARTS = ("embedding", "mixing", "MLP", "first block", "last block", "whole")
IMAGES = 200


def measure(subject) -> dict:
    """Returns λmax of the components and blocks, ‖w‖ and ‖a‖ of the blocks."""
    x, y = subject.images("train", IMAGES)
    loss = subject.loss()
    found = inspection.sharpness_table(subject.model, x, y, loss, tolerance=0.02)
    kinds = inspection.COMPONENTS[subject.model.record["builder"]]
    blocks = [v for k, v in found.eigenvalues.items() if k not in (*kinds, "whole")]
    norms = list(found.activation_norms.values())
    values = [found.eigenvalues[kind] for kind in kinds][:3]
    values += [blocks[0], blocks[-1], found.eigenvalues["whole"]]
    return {
        "lambda_max": dict(zip(PARTS, values, strict=True)),
        "weight_norm": found.weight_norm,
        "activation_norms": [norms[0], norms[-1]],
    }


def _log(seed, label, part="whole"):
    """Returns log₁₀ λmax of a component."""
    return float(np.log10(seed[label]["lambda_max"][part]))


CLAIMS = (
    Claim(
        "log₁₀ λmax of the ViT: first block − last block",
        1,
        "log₁₀ (44.4 / 26.9) = 0.22",
        lambda s: _log(s, "ViT", "first block") - _log(s, "ViT", "last block"),
    ),
    Claim(
        "log₁₀ λmax of the ViT's embedding: SAM − without",
        -1,
        "log₁₀ (3.8 / 300.4) = −1.90",
        lambda s: _log(s, "ViT-SAM", "embedding") - _log(s, "ViT", "embedding"),
    ),
    Claim(
        "log₁₀ λmax of the Mixer: SAM − without",
        -1,
        "log₁₀ (22.5 / 1644.4) = −1.86",
        lambda s: _log(s, "Mixer-SAM") - _log(s, "Mixer"),
    ),
    Claim(
        "‖w‖ of the Mixer: SAM − without",
        1,
        "389.9 − 197.6 = 192.3",
        lambda s: s["Mixer-SAM"]["weight_norm"] - s["Mixer"]["weight_norm"],
    ),
)
COLUMNS = (
    *(Column(f"λmax, {p}", lambda m, p=p: m["lambda_max"][p]) for p in PARTS),
    Column("‖w‖", lambda m: m["weight_norm"], 1),
    Column("‖a‖ of the first block", lambda m: m["activation_norms"][0], 1),
    Column("of the last block", lambda m: m["activation_norms"][1], 1),
)


def draw(figure, results) -> None:
    """Plots λmax of each component, one line for each model."""
    axis = figure.subplots()
    for place, (label, rows) in enumerate(results.items()):
        values = [[row["lambda_max"][part] for part in PARTS] for row in rows]
        measures.draw_line(axis, range(len(PARTS)), values, label, place)
    axis.set_xticks(range(len(PARTS)), PARTS)
    axis.set_yscale("log")
    axis.set_ylabel("λmax (loss / weight²)")
    axis.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: trainings.pairs(settings, "ViT", "Mixer"),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
)
