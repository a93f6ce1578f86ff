"""Table 2 of Chen et al. 2021, arXiv 2106.01548: SAM by model and size."""

import functools

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
With SAM, and in brackets the gain over plain training; images/s of a TPU core.

| | parameters | images/s | ImageNet, % | ImageNet-C, % |
|---|---|---|---|---|
| R50 | 25M | 2161 | 76.7 (+0.7) | 46.5 (+1.9) |
| R101 | 44M | 1334 | 78.6 (+0.8) | 51.3 (+2.8) |
| R152 | 60M | 935 | 79.3 (+0.8) | 52.2 (+2.2) |
| R50x2 | 98M | 891 | 79.6 (+1.5) | 50.7 (+3.9) |
| R101x2 | 173M | 519 | 80.9 (+2.4) | 54.0 (+4.7) |
| R152x2 | 236M | 356 | 81.1 (+1.8) | 55.0 (+4.2) |
| ViT-S/32 | 23M | 6888 | 70.5 (+2.1) | 46.2 (+2.9) |
| ViT-S/16 | 22M | 2043 | 78.1 (+3.7) | 53.0 (+6.5) |
| ViT-S/14 | 22M | 1234 | 78.8 (+4.0) | 54.2 (+7.0) |
| ViT-S/8 | 22M | 333 | 81.3 (+5.3) | 55.6 (+8.5) |
| ViT-B/32 | 88M | 2805 | 73.6 (+4.1) | 50.7 (+6.7) |
| ViT-B/16 | 87M | 863 | 79.9 (+5.3) | 56.5 (+9.9) |
| Mixer-S/32 | 19M | 11401 | 66.7 (+2.8) | 39.3 (+4.1) |
| Mixer-S/16 | 18M | 4005 | 72.9 (+4.1) | 42.0 (+6.4) |
| Mixer-S/8 | 20M | 1498 | 75.9 (+5.7) | 42.4 (+7.8) |
| Mixer-B/32 | 60M | 4209 | 72.4 (+9.9) | 46.2 (+12.4) |
| Mixer-B/16 | 59M | 1390 | 77.4 (+11.0) | 48.8 (+15.0) |
| Mixer-B/8 | 64M | 466 | 79.0 (+10.4) | 48.9 (+16.9) |
"""
SMALL = {  # {size: (model, settings of its training)}; the first three are the default
    "ResNet": ("ResNet", {}),
    "ViT/7": ("ViT", {}),
    "Mixer/7": ("Mixer", {}),
    "ResNet-deep": ("ResNet", {"model_options": ("depths=[2,1]",)}),
    "ViT/4": ("ViT", {"model_options": ("patch_size=4",)}),
    "Mixer/4": ("Mixer", {"model_options": ("patch_size=4",)}),
}
FULL = {
    **{
        f"R{name}": ("ResNet", {"model": f"BiTR{name}" + ("" if "x" in name else "x1")})
        for name in ("50", "101", "152", "50x2", "101x2", "152x2")
    },
    **{
        f"{model}-{size}/{patch}": (model, {"model": f"{model}{size}{patch}"})
        for model in ("ViT", "Mixer")
        for size, patches in (("S", (32, 16, 8)), ("B", (32, 16)))
        for patch in patches
    },
}
FULL_DEFAULT = ("R50", "ViT-S/16", "Mixer-S/16")
BATCH = 100


def subjects(settings) -> dict:
    """Returns the trainings of one seed: each size without SAM and with it."""
    sizes, default = (FULL, FULL_DEFAULT) if settings.full else (SMALL, [*SMALL][:3])
    chosen = settings.sizes or default
    if unknown := [each for each in chosen if each not in sizes]:
        raise ValueError(
            f"`sizes` must be of {', '.join(sizes)}. Received: {', '.join(unknown)}."
        )
    return {
        f"{size}{end}": trainings.of(settings, sizes[size][0], sam, **sizes[size][1])
        for size in chosen
        for end, sam in (("", False), ("-SAM", True))
    }


def measure(subject) -> dict:
    """Returns parameters, images per second, and both accuracies."""
    x, _ = subject.images("test", BATCH)
    predict = functools.partial(subject.model.predict, batch_size=len(x), verbose=0)
    return {
        "parameters": subject.model.count_params(),
        "images_per_second": measures.images_per_second(predict, x),
        "accuracy": subject.result["accuracy"],
        **measures.corrupted(subject),
    }


def _gains(seed, model, quantity="accuracy"):
    """Returns the mean gain of SAM over the sizes of a model, in points."""
    sizes = [label for label in seed if f"{label}-SAM" in seed]
    letter = "R" if model == "ResNet" else model
    gains = [
        100 * (seed[f"{size}-SAM"][quantity] - seed[size][quantity])
        for size in sizes
        if size.startswith(letter)
    ]
    return sum(gains) / len(gains) if gains else float("nan")


CLAIMS = (
    Claim(
        "accuracy of ResNets, points: SAM − without",
        1,
        "+0.7 to +2.4",
        lambda s: _gains(s, "ResNet"),
    ),
    Claim(
        "accuracy of ViTs, points: SAM − without",
        1,
        "+2.1 to +5.3",
        lambda s: _gains(s, "ViT"),
    ),
    Claim(
        "accuracy of Mixers, points: SAM − without",
        1,
        "+2.8 to +11.0",
        lambda s: _gains(s, "Mixer"),
    ),
    Claim(
        "gain by SAM of Mixers − that of ResNets, corrupted images, points",
        1,
        "+4.1 to +16.9 against +1.9 to +4.7",
        lambda s: _gains(s, "Mixer", "corrupted") - _gains(s, "ResNet", "corrupted"),
    ),
)
COLUMNS = (
    Column("parameters", lambda m: m["parameters"], 0),
    Column("images/s", lambda m: m["images_per_second"], 0),
    measures.ACCURACY,
    Column("corrupted, %", lambda m: 100 * m["corrupted"], 1),
)


def draw(figure, results) -> None:
    """Plots a point per training and a line at the mean, of each size."""
    for axis, column in zip(figure.subplots(1, 2), COLUMNS[2:], strict=True):
        measures.draw_points(axis, results, column)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
    options=("sizes",),
    notes=f"{measures.CORRUPTED} Images/s are those of `predict`, in miniature in one "
    "thread of a busy processor. ",
)
