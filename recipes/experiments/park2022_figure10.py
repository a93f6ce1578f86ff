"""Figure 10 of Park and Kim 2022, arXiv 2202.06709: accuracy without each part."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
Of ResNet and Swin trained on ImageNet one part is removed. The accuracy falls most
without a convolution or an MLP at the beginning of a stage, and without attention at
the end of a stage; it does so from stage to stage: a network of several stages behaves
like small networks in series.
"""
IMAGES = 500
MODELS = {"ViT": "ablation", "Swin": "Swin", "ResNet": "twin", "AlterNet": "AlterNet"}
PARTS = {"ViT": ("attention", "mlp"), "Swin": ("attention", "mlp")}


def measure(subject) -> dict:
    """Returns the points of accuracy that are lost without each part."""
    x, y = subject.images("test", IMAGES)
    found = {"accuracy": subject.result["accuracy"], "lost": {}}
    for what in PARTS.get(subject.label, ("block",)):
        lesions = inspection.lesion(subject.model, x, y, what=what, batch_size=100)
        found["lost"] |= {
            f"{path.split('/')[0]}/{what}": 100 * (lesions.clean - accuracy)
            for path, accuracy in lesions.accuracies.items()
        }
    return found


def _by_place(lost, what):
    """Returns mean points without the first parts of the stages, and the last ones."""
    stages = {}
    for name, points in lost.items():
        if name.startswith("stage_") and name.endswith(f"/{what}"):
            stages.setdefault(name.split("_")[1], []).append(points)
    return (float(np.mean([s[place] for s in stages.values()])) for place in (0, -1))


def _last_minus_first(model, what):
    """Returns a function of a seed: points without the last parts − the first."""

    def difference(seed) -> float:
        first, last = _by_place(seed[model]["lost"], what)
        return last - first

    return difference


def _last(model):
    return lambda seed: [*_by_place(seed[model]["lost"], "block")][1]


CLAIMS = (
    Claim(
        "points lost without a unit of the ResNet: last of a stage − first",
        -1,
        "figure 10: the beginning of a stage matters most",
        _last_minus_first("ResNet", "block"),
    ),
    Claim(
        "points lost without an attention of the Swin: last of a stage − first",
        1,
        "figure 10: attention at the end of a stage",
        _last_minus_first("Swin", "attention"),
    ),
    Claim(
        "points lost without an MLP of the Swin: last of a stage − first",
        -1,
        "figure 10",
        _last_minus_first("Swin", "mlp"),
    ),
    Claim(
        "points lost without the last unit of a stage: AlterNet − ResNet",
        1,
        "section 4: attention at the end of a stage plays a key role",
        lambda s: _last("AlterNet")(s) - _last("ResNet")(s),
    ),
)
COLUMNS = (
    measures.ACCURACY,
    Column("most that a part matters, points", lambda m: max(m["lost"].values()), 1),
    Column("least", lambda m: min(m["lost"].values()), 1),
)


def draw(figure, results) -> None:
    """Plots the points that each part is worth, over the depth."""
    axes = figure.subplots(1, len(results), sharey=True)
    for axis, (label, rows) in zip(axes, results.items(), strict=True):
        values = np.array([[*row["lost"].values()] for row in rows])
        names = [*rows[0]["lost"]]
        for place, what in enumerate(PARTS.get(label, ("block",))):
            mine = [name.endswith(f"/{what}") for name in names]
            depth = np.arange(sum(mine))
            measures.draw_line(axis, depth, values[:, mine], what, place)
        stages = [n.split("_")[1] for n in names if n.endswith(f"/{what}")]
        for i, (before, after) in enumerate(zip(stages, stages[1:], strict=False)):
            if label != "ViT" and before != after:
                axis.axvline(i + 0.5, color="gray", linewidth=0.8)
        axis.set(title=label, xlabel="part")
        axis.legend(frameon=False)
    axes[0].set_ylabel("points of accuracy that are lost")


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: {
        label: trainings.of(settings, model) for label, model in MODELS.items()
    },
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(12, 4),
    notes="Stages of the small models have two blocks or units. Where a unit changes "
    "the size of the map, its shortcut stays. ",
)
