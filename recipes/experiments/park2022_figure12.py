"""Figure 12 of Park and Kim 2022, arXiv 2202.06709: AlterNet by the build-up rule."""

from . import measures, spectra, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
In a ResNet for CIFAR-100, convolutions at the end of a stage are replaced with
attention one by one, from the last stage on: that makes AlterNet. More attention within
one stage harms, and attention at the end of the stage before helps. AlterNet is more
accurate than the ResNet on clean and on corrupted images, and attention suppresses the
large eigenvalues of the Hessian early in training.
"""
DEPTHS = {  # {label: units with attention of each stage}
    "no attention": "[0,0,0]",
    "last stage": "[0,0,1]",
    "last two": "[0,1,1]",
    "all stages": "[1,1,1]",
}
FULL = {  # of AlterNet50CIFAR100, which has [0,1,1,2]
    "no attention": "[0,0,0,0]",
    "last stage": "[0,0,0,2]",
    "last two": "[0,1,1,2]",  # attention in the second stage, too
    "all stages": "[1,1,1,2]",
}
ALTERNET = "last two"  # the model of the same name


def subjects(settings) -> dict:
    """Returns the trainings of one seed, and of two of them the early ones."""
    found = {
        label: trainings.of(
            settings, "AlterNet", model_options=(f"attention_depths={depths}",)
        )
        for label, depths in (FULL if settings.full else DEPTHS).items()
    }
    early = spectra.early({key: found[key] for key in ("no attention", ALTERNET)})
    return found | {k: v for k, v in early.items() if k.endswith("early")}


def measure(subject) -> dict:
    """Returns accuracies, clean and corrupted; of an early training eigenvalues."""
    found = spectra.measure(subject)
    if not subject.label.endswith("early"):
        found |= measures.corrupted(subject)
    return found


CLAIMS = (
    Claim(
        "test accuracy, points: AlterNet − ResNet",
        1,
        "figure 12b",
        measures.points("accuracy", ALTERNET, "no attention"),
    ),
    Claim(
        "accuracy on corrupted images, points: AlterNet − ResNet",
        1,
        "figure 12b",
        measures.points("corrupted", ALTERNET, "no attention"),
    ),
    Claim(
        "test accuracy, points: attention in the last two stages − in the last",
        1,
        "figure 12a: attention at the end of an earlier stage helps",
        measures.points("accuracy", ALTERNET, "last stage"),
    ),
    Claim(
        "largest eigenvalue, early, log₁₀: AlterNet − ResNet",
        -1,
        "figure 12c: attention suppresses the large ones",
        measures.log_ratio("largest", f"{ALTERNET}, early", "no attention, early"),
    ),
)
COLUMNS = (
    *spectra.COLUMNS,
    Column(
        "corrupted, %",
        lambda m: 100 * m["corrupted"] if "corrupted" in m else None,
        1,
    ),
)


def draw(figure, results) -> None:
    """Plots clean and corrupted accuracy by the number of stages, and eigenvalues."""
    left, middle, right = figure.subplots(1, 3)
    whole = {k: rows for k, rows in results.items() if not k.endswith("early")}
    measures.draw_points(left, whole, measures.ACCURACY)
    measures.draw_points(middle, whole, COLUMNS[-1])
    spectra.draw_eigenvalues(right, results, ("no attention", ALTERNET))


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(12, 4.5),
    notes=f"{measures.CORRUPTED} {spectra.NOTES}",
)
