"""Figure 2 of Park and Kim 2022, arXiv 2202.06709: ViT is a low-pass filter."""

import numpy as np

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
(a) The high frequencies of a ViT's feature maps get weaker with depth, those of a
ResNet do not. (b) The accuracy of a ViT falls less than that of a ResNet under noise of
high frequency: ViTs are robust to it. The paper shows ViT-Ti and ResNet-50 on CIFAR-100
as pictures, without numbers.
"""
IMAGES = 500
NOISE = 0.5  # root mean square, in deviations of the images
BANDS = tuple((i / 7, (i + 1) / 7) for i in range(7))
HIGH = slice(4, None)  # bands of high frequency


def subjects(settings) -> dict:
    """Returns the trainings of one seed."""
    models = {"ViT": "ablation", "ResNet": "twin"}
    return {label: trainings.of(settings, model) for label, model in models.items()}


def measure(subject) -> dict:
    """Returns amplitudes of the highest frequency by depth, and accuracy by noise."""
    x, y = subject.images("test", IMAGES)
    found = inspection.relative_log_amplitudes(subject.model, x)
    noisy = inspection.frequency_noise_accuracy(
        subject.model, x, y, NOISE * float(x.std()), seed=0, bands=BANDS
    )
    high = [float(each[-1]) for each in found.amplitudes]
    return {
        "amplitude": high,
        "change": high[-1] - high[0],
        "clean": noisy.clean,
        "noisy": noisy.accuracies.tolist(),
        "loss_of_high": noisy.clean - float(noisy.accuracies[HIGH].mean()),
        "accuracy": subject.result["accuracy"],
    }


CLAIMS = (
    Claim(
        "change of the highest frequency from first to last block, log: ViT",
        -1,
        "figure 2a: it falls",
        lambda s: s["ViT"]["change"],
    ),
    Claim(
        "the same: ViT − ResNet",
        -1,
        "figure 2a: ViT below ResNet",
        lambda s: s["ViT"]["change"] - s["ResNet"]["change"],
    ),
    Claim(
        "accuracy lost by noise of high frequency, points: ViT − ResNet",
        -1,
        "figure 2b: ViT loses less",
        lambda s: 100 * (s["ViT"]["loss_of_high"] - s["ResNet"]["loss_of_high"]),
    ),
)
COLUMNS = (
    Column("Δ log amplitude, first block", lambda m: m["amplitude"][0]),
    Column("last block", lambda m: m["amplitude"][-1]),
    measures.ACCURACY,
    Column("lost by high frequencies, points", lambda m: 100 * m["loss_of_high"], 1),
)


def draw(figure, results) -> None:
    """Plots amplitudes over the depth, and lost accuracy over the frequency."""
    left, right = figure.subplots(1, 2)
    for place, (label, rows) in enumerate(results.items()):
        high = np.array([row["amplitude"] for row in rows])
        depth = np.linspace(0, 1, high.shape[1])
        measures.draw_line(left, depth, high, label, place)
        lost = [100 * (np.array(row["noisy"]) - row["clean"]) for row in rows]
        measures.draw_line(right, np.mean(BANDS, 1), lost, label, place)
    left.set(xlabel="depth", ylabel="Δ log amplitude of the highest frequency")
    right.set(xlabel="frequency of the noise (π per pixel)", ylabel="accuracy, points")
    left.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
)
