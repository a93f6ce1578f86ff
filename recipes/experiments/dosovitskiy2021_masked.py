"""Section 4.6 of Dosovitskiy et al. 2021, arXiv 2010.11929: masked patches."""

import dataclasses
from pathlib import Path

import finetune
from pretrain import PRESETS

from . import measures, trainings
from .experiment import Claim, Experiment

PAPER = """
ViT-B/16 on ImageNet, top-1: pre-trained on JFT-300M by the mean colours of masked
patches 79.9 %, 2 points more than from scratch and 4 less than pre-trained with labels.
"""
FEW = 0.2  # share of the images of the classes that are learned then
SCRATCH = "from scratch"


def subjects(settings) -> dict:
    """Returns the trainings of one seed: on half of the classes, or from scratch.

    The masked patches are those of the same images, without their labels.
    """
    if settings.full:
        first = trainings.preset(settings, "vit_i21k")
        scratch = dataclasses.replace(PRESETS["vit"], model=first.model)
        if settings.steps:
            scratch = dataclasses.replace(scratch, steps=settings.steps, epochs=None)
        return {
            "masked": dataclasses.replace(first, objective="masked", loss="softmax"),
            "supervised": first,
            SCRATCH: scratch,
        }
    first, second = trainings.halves(settings)
    return {
        "masked": trainings.of(settings, "ViT", classes=first, objective="masked"),
        "supervised": trainings.of(settings, "ViT", classes=first),
        SCRATCH: trainings.of(settings, "ViT", classes=second, share=FEW),
    }


def measure(subject) -> dict:
    """Returns the accuracy: from scratch, or after fine-tuning."""
    if subject.label == SCRATCH:
        return {"accuracy": subject.result["accuracy"]}
    config = subject.config
    then = {"weights": f"{config.out}/model", "seed": subject.seed}
    then["out"] = str(Path(config.out).with_name(f"{Path(config.out).name}-tuned"))
    if subject.settings.full:
        found = finetune.finetune(
            dataclasses.replace(finetune.PRESETS["imagenet"], **then)
        )
    else:
        _, then["classes"] = trainings.halves(subject.settings)
        then |= {"dataset": config.dataset, "data": config.data, "share": FEW}
        then |= {"steps": config.steps, "batch_size": config.batch_size}
        found = finetune.finetune(
            finetune.Config(rho=0.0, augment="none", linear_head=False, **then)
        )
    return {"accuracy": found["accuracy"]}


CLAIMS = (
    Claim(
        "accuracy, points: masked − from scratch",
        1,
        "section 4.6: +2",
        measures.points("accuracy", "masked", SCRATCH),
    ),
    Claim(
        "accuracy, points: supervised − masked",
        1,
        "section 4.6: +4",
        measures.points("accuracy", "supervised", "masked"),
    ),
)
EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=[measures.ACCURACY],
    draw=lambda figure, results: measures.draw_points(
        figure.subplots(), results, measures.ACCURACY
    ),
    size=(5, 4),
    notes="Without --full: pre-trained on the first half of the classes, then trained "
    f"on {FEW:.0%} of the images of the others, as the one from scratch. ",
)
