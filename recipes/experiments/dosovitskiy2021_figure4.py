"""Figure 4 of Dosovitskiy et al. 2021, arXiv 2010.11929: more images, few shots."""

import math

import numpy as np
from training import training_data

from kerasvit import evaluation

from . import measures, trainings
from .experiment import Claim, Column, Experiment
from .settings import DEFAULTS

PAPER = """
Linear 5-shot accuracy on ImageNet after pre-training on random parts of JFT-300M, from
10 million images to all: BiT-ResNets are better with few images, and stop gaining
sooner; the ViTs overtake them with more.
"""
SHARES = (1.0, 0.5, 0.2)
SHOTS, CHOICES, TESTED = 5, 3, 5000
MODELS = {"ViT": "vit_i21k", "ResNet": "bit_i21k"}  # presets of --full


def subjects(settings) -> dict:
    """Returns the trainings of one seed: on the first half of the classes."""
    first, _ = (None, None) if settings.full else trainings.halves(settings)
    found = {}
    for share in sorted(settings.shares or SHARES, reverse=True):
        for model, preset in MODELS.items():
            if settings.full:
                options = {"share": share, "same_steps": share < 1}
                config = trainings.preset(settings, preset, **options)
            else:
                config = trainings.of(settings, model, classes=first, share=share)
            found[f"{model}, {share:.12g}"] = config
    return found


def _others(settings):
    """Returns the settings of the images whose classes are learned from few of them."""
    if settings.full:
        return {"dataset": "imagenet2012", "data": None, "classes": None}
    own = {"dataset": DEFAULTS["dataset"], "data": None, **trainings.data_of(settings)}
    return {**own, "classes": trainings.halves(settings)[1]}


def check(settings) -> None:
    """Raises a `ValueError` if these images are missing, or fewer than the shots."""
    others = _others(settings)
    found = training_data.find(
        others["dataset"], others["data"], classes=others["classes"]
    )
    labels, classes = found.train.images.labels, len(found.class_names)
    evaluation.shots_of_classes(labels, classes, SHOTS, seed=0)


def measure(subject) -> dict:
    """Returns the accuracy of least squares on features, with few images of a class.

    In miniature the classes are those that were not trained; with --full, ImageNet's.
    """
    other = subject.on(**_others(subject.settings), share=1.0)
    images, classes = other.dataset.train.images, len(other.dataset.class_names)
    test = other.dataset.test.sample(TESTED, seed=0)
    x, hits = measures.features(other, test), []
    for seed in range(CHOICES):
        chosen = evaluation.shots_of_classes(images.labels, classes, SHOTS, seed)
        few = images.part(np.sort(chosen))
        trained = measures.features(other, few)
        kernel, bias = evaluation.least_squares(trained, few.labels, classes)
        hits.append(np.mean((x @ kernel + bias).argmax(1) == test.labels))
    return {"few_shot": float(np.mean(hits)), "accuracy": subject.result["accuracy"]}


def _few_shot(seed, model):
    """Returns the few-shot accuracies in %, from most to fewest images."""
    return [
        100 * row["few_shot"]
        for label, row in seed.items()
        if label.startswith(f"{model}, ")
    ]


def _gain(seed, model):
    found = _few_shot(seed, model)
    return found[0] - found[-1] if len(found) > 1 else math.nan


CLAIMS = (
    Claim(
        "few-shot accuracy with the fewest images, points: ResNet − ViT",
        1,
        "figure 4, left end",
        lambda s: _few_shot(s, "ResNet")[-1] - _few_shot(s, "ViT")[-1],
    ),
    Claim(
        "few-shot accuracy with all images, points: ViT − ResNet",
        1,
        "figure 4, right end",
        lambda s: _few_shot(s, "ViT")[0] - _few_shot(s, "ResNet")[0],
    ),
    Claim(
        "gain from the fewest images to all, points: ViT − ResNet",
        1,
        "figure 4: the ResNets' lines are flatter",
        lambda s: _gain(s, "ViT") - _gain(s, "ResNet"),
    ),
)
COLUMNS = (
    Column("5-shot accuracy, %", lambda m: 100 * m["few_shot"], 1),
    Column("accuracy of the pre-training, %", lambda m: 100 * m["accuracy"], 1),
)


def draw(figure, results) -> None:
    """Plots few-shot accuracy over the share of the images."""
    axis = figure.subplots()
    for place, model in enumerate(MODELS):
        measures.draw_shares(axis, results, model, "few_shot", model, place)
    axis.set(xlabel="share of the images of the pre-training")
    axis.set_ylabel("5-shot accuracy, %")
    axis.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(6, 4),
    options=("shares",),
    check=check,
    notes="Without --full: pre-trained on the first half of the classes, 5 shots of "
    f"each of the others ({CHOICES} choices of shots). ",
)
