"""Figure 5 of Dosovitskiy et al. 2021, arXiv 2010.11929: accuracy against compute."""

import numpy as np
from scoring import multiply_adds

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
Accuracy after transfer against the compute of pre-training on JFT-300M, in exaFLOPs:
ViTs need 2 to 4 times less compute than ResNets for the same accuracy. Hybrids are
slightly better than ViTs at small compute, and the difference vanishes for larger
models.
"""
SIZES = {  # {label: settings of each size}
    "ViT": [
        f"width={width} depth={depth} mlp_dim={2 * width} patch_size=4"
        for width, depth in ((16, 1), (24, 2), (32, 3), (48, 4), (64, 4))
    ],
    "ResNet": [
        f"depths={depths}" for depths in ("[1]", "[2]", "[3]", "[1,1]", "[2,1]")
    ],
    "Hybrid": [
        f"width={width} depth={depth} mlp_dim={2 * width}"
        for width, depth in ((16, 1), (24, 1), (32, 2), (48, 3), (64, 3))
    ],
}
FULL = {  # {label: (preset, models)}
    "ViT": ("vit_i21k", ("ViTB32", "ViTB16", "ViTL32", "ViTL16", "ViTH14")),
    "ResNet": ("bit_i21k", ("BiTR50x1", "BiTR101x1", "BiTR50x2", "BiTR152x2")),
    "Hybrid": ("vit_i21k", ("R50ViTB16", "R50ViTL32")),
}
PASSES = 3  # multiply-adds of a training step over those of a prediction, as in papers


def subjects(settings) -> dict:
    """Returns the trainings of one seed: every size of each family."""
    if settings.full:
        return {
            f"{family}, {model}": trainings.preset(settings, preset, model=model)
            for family, (preset, models) in FULL.items()
            for model in models
        }
    return {
        f"{family}, {i}": trainings.of(
            settings, family, model_options=tuple(options.split())
        )
        for family, sizes in SIZES.items()
        for i, options in enumerate(sizes, 1)
    }


def measure(subject) -> dict:
    """Returns the accuracy, and the multiply-adds of an image and of the training."""
    each = multiply_adds.of(subject.model)
    config = subject.config
    images = (config.steps or 0) * config.batch_size or (
        config.epochs * len(subject.dataset.train)
    )
    return {
        "multiply_adds": each,
        "compute": PASSES * each * images,
        "parameters": subject.model.count_params(),
        "accuracy": subject.result["accuracy"],
    }


def _points(rows, family):
    """Returns log₁₀ of the compute and accuracy in %, by compute."""
    found = [row for label, row in rows.items() if label.startswith(f"{family}, ")]
    pairs = [(np.log10(row["compute"]), 100 * row["accuracy"]) for row in found]
    return np.transpose(sorted(pairs))


def _gaps(seed, one, other):
    """Returns accuracies at the same compute, interpolated: differences in points."""
    (x, y), (u, v) = _points(seed, one), _points(seed, other)
    ends = max(x[0], u[0]), min(x[-1], u[-1])
    if ends[0] > ends[1]:
        return np.full(9, np.nan)
    shared = np.linspace(*ends, 9)
    return np.interp(shared, x, y) - np.interp(shared, u, v)


CLAIMS = (
    Claim(
        "accuracy at the same compute, points: ViT − ResNet",
        1,
        "figure 5: ViTs need less compute",
        lambda s: float(_gaps(s, "ViT", "ResNet").mean()),
    ),
    Claim(
        "accuracy at the least compute that both have, points: Hybrid − ViT",
        1,
        "figure 5: hybrids are better when small",
        lambda s: float(_gaps(s, "Hybrid", "ViT")[0]),
    ),
    Claim(
        "the same difference: at the least compute − at the most",
        1,
        "figure 5: it vanishes",
        lambda s: float(np.subtract(*_gaps(s, "Hybrid", "ViT")[[0, -1]])),
    ),
)
COLUMNS = (
    Column("parameters", lambda m: m["parameters"], 0),
    Column("multiply-adds, millions", lambda m: m["multiply_adds"] / 1e6),
    Column("of the training, 10¹²", lambda m: m["compute"] / 1e12, 3),
    measures.ACCURACY,
)


def draw(figure, results) -> None:
    """Plots the accuracy over the compute of the training, for each family."""
    axis = figure.subplots()
    for place, family in enumerate(SIZES):
        found = [rows for k, rows in results.items() if k.startswith(f"{family}, ")]
        found.sort(key=lambda rows: rows[0]["compute"])
        compute = [rows[0]["compute"] / 1e12 for rows in found]
        values = [[100 * row["accuracy"] for row in rows] for rows in found]
        measures.draw_line(axis, compute, np.transpose(values), family, place)
    axis.set(xlabel="multiply-adds of the training, 10¹²", ylabel="test accuracy, %")
    axis.set_xscale("log")
    measures.plain_logarithms(axis)
    axis.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(7, 4.5),
    notes="The accuracy is that of the task itself, without transfer. Compute is "
    "counted by tracing the model: three times the multiply-adds of all images. ",
)
