"""Table 4 of Chen et al. 2021, arXiv 2106.01548: fewer images, SAM, augmentation."""

import math

from . import measures, trainings
from .experiment import Claim, Experiment

PAPER = """
ImageNet top-1, %; all trainings have the number of steps of all images.

| images | R152 | SAM | ViT-B/16 | SAM | AUG | both | Mixer-B/16 | SAM | AUG | both |
|---|---|---|---|---|---|---|---|---|---|---|
| all | 78.5 | 79.3 | 74.6 | 79.9 | 79.6 | 81.5 | 66.4 | 77.4 | 76.5 | 78.1 |
| 1/2 | 74.2 | 75.6 | 64.9 | 75.4 | 73.1 | 75.8 | 53.9 | 71.0 | 70.4 | 73.1 |
| 1/4 | 68.0 | 70.3 | 52.4 | 66.8 | 63.2 | 65.6 | 37.2 | 62.8 | 61.0 | 65.8 |
| 1/10 | 54.6 | 57.1 | 32.8 | 46.1 | 38.5 | 45.7 | 21.0 | 43.5 | 43.0 | 51.0 |
"""
SHARES = (1.0, 0.25)
MODELS = {"ViT": {}, "Mixer": {}, "ResNet": {"model": "BiTR152x1"}}  # of --full
KINDS = {"": {}, "-SAM": {"sam": True}, "-AUG": {"augmented": True}} | {
    "-SAM+AUG": {"sam": True, "augmented": True}
}


def subjects(settings) -> dict:
    """Returns the trainings of one seed: those of all images, then fewer."""
    return {
        f"{model}{end}, {share:.12g}": trainings.of(
            settings, model, full=full, share=share, same_steps=share < 1, **options
        )
        for share in sorted(settings.shares or SHARES, reverse=True)
        for model, full in MODELS.items()
        for end, options in KINDS.items()
        if model != "ResNet" or "AUG" not in end
    }


def _gain(model, end, seed):
    """Returns the gain in points for each share, from all images to the fewest."""
    shares = list(dict.fromkeys(label.split(", ")[1] for label in seed))
    return [
        100
        * (
            seed[f"{model}{end}, {share}"]["accuracy"]
            - seed[f"{model}, {share}"]["accuracy"]
        )
        for share in shares
    ]


def _fewest(model, end="-SAM"):
    """Returns a function of a seed: the gain with the fewest images."""
    return lambda seed: _gain(model, end, seed)[-1]


def _growth(seed):
    gains = _gain("Mixer", "-SAM", seed)
    return gains[-1] - gains[0] if len(gains) > 1 else math.nan


CLAIMS = (
    Claim(
        "points with the fewest images: ViT-SAM − ViT",
        1,
        "1/4: 66.8 − 52.4 = 14.4",
        _fewest("ViT"),
    ),
    Claim(
        "points with the fewest images: Mixer-SAM − Mixer",
        1,
        "1/4: 62.8 − 37.2 = 25.6",
        _fewest("Mixer"),
    ),
    Claim(  # chosen after the training
        "points with the fewest images: ResNet-SAM − ResNet",
        1,
        "1/4: 70.3 − 68.0 = 2.3",
        _fewest("ResNet"),
    ),
    Claim(
        "SAM's gain for the Mixer, points: fewest images − all images",
        1,
        "25.6 − 11.0 = 14.6",
        _growth,
    ),
    Claim(
        "points with the fewest images: ViT-AUG − ViT",
        1,
        "1/4: 63.2 − 52.4 = 10.8",
        _fewest("ViT", "-AUG"),
    ),
)


def draw(figure, results) -> None:
    """Plots the accuracy over the share of the images, for each model."""
    axes = figure.subplots(1, 3, sharey=True)
    for axis, model in zip(axes, MODELS, strict=True):
        for place, end in enumerate(KINDS):
            name, label = f"{model}{end}", end[1:] or "plain"
            measures.draw_shares(axis, results, name, "accuracy", label, place)
        axis.set(title=model, xlabel="share of the training images")
    axes[0].set_ylabel("test accuracy, %")
    axes[0].legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measures.accuracy,
    claims=CLAIMS,
    columns=[measures.ACCURACY],
    draw=draw,
    size=(11, 4),
    options=("shares",),
    notes="AUG are small shifts and rotations, with Mixup of alpha 0.5. ",
)
