"""Table 1 of Chen et al. 2021, arXiv 2106.01548: SAM, curvature and accuracy."""

from kerasvit import inspection

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
| | R-50 | R-152 | ViT-B/16 | ViT-B/16-SAM | Mixer-B/16 | Mixer-B/16-SAM |
|---|---|---|---|---|---|---|
| parameters | 25M | 60M | 87M | 87M | 59M | 59M |
| NTK κ | 2801.6 | 2801.6 | 4205.3 | 4205.3 | 14468.0 | 14468.0 |
| λmax | 122.9 | 179.8 | 738.8 | 20.9 | 1644.4 | 22.5 |
| ImageNet, % | 76.0 | 78.5 | 74.6 | 79.9 | 66.4 | 77.4 |
| ImageNet-C, % | 44.6 | 50.0 | 46.6 | 56.5 | 33.8 | 48.8 |

κ is that of the neural tangent kernel at the start. The table prints one κ for both
ResNets: nothing is concluded from it.
"""


def measure(subject) -> dict:
    """Returns parameters, κ at the start, λmax and both accuracies."""
    x, y = subject.images("train")
    loss = subject.loss()
    return {
        "parameters": subject.model.count_params(),
        "kappa": measures.kappa(subject, x),
        "lambda_max": inspection.largest_eigenvalue(
            subject.model, x, y, loss, tolerance=0.02
        ),
        "accuracy": subject.result["accuracy"],
        **measures.corrupted(subject),
    }


CLAIMS = (
    Claim(
        "log₁₀ λmax: ViT-SAM − ViT",
        -1,
        "log₁₀ (20.9 / 738.8) = −1.55",
        measures.log_ratio("lambda_max", "ViT-SAM", "ViT"),
    ),
    Claim(
        "log₁₀ λmax: Mixer − ResNet",
        1,
        "log₁₀ (1644.4 / 122.9) = 1.13",
        measures.log_ratio("lambda_max", "Mixer", "ResNet"),
    ),
    Claim(
        "log₁₀ κ: Mixer − ViT",
        1,
        "log₁₀ (14468.0 / 4205.3) = 0.54",
        measures.log_ratio("kappa", "Mixer", "ViT"),
    ),
    Claim(
        "accuracy, points: Mixer-SAM − Mixer",
        1,
        "77.4 − 66.4 = 11.0",
        measures.points("accuracy", "Mixer-SAM", "Mixer"),
    ),
)
COLUMNS = (
    Column("parameters", lambda m: m["parameters"], 0),
    Column("NTK κ at the start", lambda m: m["kappa"], 0),
    Column("λmax", lambda m: m["lambda_max"]),
    measures.ACCURACY,
    Column("corrupted, %", lambda m: 100 * m["corrupted"], 1),
)


def draw(figure, results) -> None:
    """Plots a point per training and a line at the mean, of each model."""
    axes = figure.subplots(1, len(COLUMNS) - 1)
    for axis, column in zip(axes, COLUMNS[1:], strict=True):
        measures.draw_points(axis, results, column, log="%" not in column.heading)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=trainings.compared,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(12, 4),
    notes=measures.CORRUPTED,
)
