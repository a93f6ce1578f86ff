"""Figure 3 of Foret et al. 2021, arXiv 2010.01412: rho, λmax and m-sharpness."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
The paper chooses rho from 0.01, 0.02, 0.05, 0.1, 0.2 and 0.5, and finds that 0.05 is a
good default. A WideResNet trained with SAM on CIFAR-10 has smaller eigenvalues of the
Hessian (section 4.2), and the test error is lower for smaller m, the number of images
that share a perturbation (section 4.1).
"""
RHOS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
PARTS = 10  # of a batch of 100, each with a perturbation of its own
GROUPED = "rho 0.1, m 10"


def subjects(settings) -> dict:
    """Returns the trainings of one seed: one for each rho, and one with small m."""
    found = {f"rho {rho:g}": trainings.of(settings, "ResNet", rho=rho) for rho in RHOS}
    found[GROUPED] = trainings.of(settings, "ResNet", rho=0.1, micro_batches=PARTS)
    return found


def measure(subject) -> dict:
    """Returns the test accuracy and λmax on training images."""
    x, y = subject.images("train")
    options = {"loss": subject.loss(), "tolerance": 0.02}
    return {
        "accuracy": subject.result["accuracy"],
        "lambda_max": inspection.largest_eigenvalue(subject.model, x, y, **options),
    }


CLAIMS = (
    Claim(
        "log₁₀ λmax: rho 0.1 − rho 0",
        -1,
        "figure 3, left: smaller eigenvalues",
        measures.log_ratio("lambda_max", "rho 0.1", "rho 0"),
    ),
    Claim(
        "test accuracy, points: rho 0.05 − rho 0",
        1,
        "tables 1 and 2: SAM has the lower error",
        measures.points("accuracy", "rho 0.05", "rho 0"),
    ),
    Claim(  # chosen after the training
        "test accuracy, points: m 10, rho 0.1 − rho 0",
        1,
        "tables 1 and 2: SAM has the lower error",
        measures.points("accuracy", GROUPED, "rho 0"),
    ),
    Claim(
        "test accuracy, points: m 10 − m 100, rho 0.1",
        1,
        "figure 3, middle: the error is lower for smaller m",
        measures.points("accuracy", GROUPED, "rho 0.1"),
    ),
)
COLUMNS = (
    measures.ACCURACY,
    Column("λmax", lambda m: m["lambda_max"]),
)


def draw(figure, results) -> None:
    """Plots accuracy and λmax over rho, with the training of small m beside."""
    for axis, column in zip(figure.subplots(1, 2), COLUMNS, strict=True):
        for place, (name, labels) in enumerate(
            {
                "m 100": [f"rho {rho:g}" for rho in RHOS],
                "m 10": [GROUPED],
            }.items()
        ):
            values = np.transpose(
                [[column.value(row) for row in results[label]] for label in labels]
            )
            rhos = RHOS if place == 0 else (0.1,)
            measures.draw_line(axis, rhos, values, name, place)
        axis.set(xlabel="rho", ylabel=column.heading)
        axis.set_xscale("symlog", linthresh=0.02)
        axis.set_xticks(RHOS, [f"{rho:g}" for rho in RHOS])
    axis.set_yscale("log")
    axis.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
    notes="With --full: a ResNet-50 on ImageNet, and m is a tenth of its batch. ",
)
