"""Tables 2 and 3 of Touvron et al. 2021, arXiv 2012.12877: a teacher for a ViT."""

from . import measures, trainings
from .experiment import Claim, Experiment

PAPER = """
ImageNet, %, of facebookresearch/deit; the teacher is RegNetY-16GF, with hard labels.

| | DeiT-Ti | DeiT-S | DeiT-B |
|---|---|---|---|
| without teacher | 72.2 | 79.9 | 81.8 |
| with it | 74.5 | 81.2 | 83.4 |

A convolutional network is a better teacher than a Transformer (table 2), and its hard
labels are better than its probabilities (table 3).
"""
TEACHERS = {"ResNet": "ResNet", "another ViT": "ablation"}
STUDENTS = {  # {label: (teacher, kind of the labels)}
    "ViT": None,
    "ViT, hard": ("ResNet", "hard"),
    "ViT, soft": ("ResNet", "soft"),
    "ViT, taught by a ViT": ("another ViT", "hard"),
}


def subjects(settings) -> dict:
    """Returns the trainings of one seed: the teachers, then the students."""
    if settings.full:
        return {
            "ViT": trainings.preset(settings, "deit"),
            "ViT, hard": trainings.preset(settings, "deit_distilled"),
        }
    found = {
        label: trainings.of(settings, family, augmented=True)
        for label, family in TEACHERS.items()
    }
    for label, how in STUDENTS.items():
        options = {"teacher": f"@{how[0]}", "distill": how[1]} if how else {}
        found[label] = trainings.of(settings, "ViT", augmented=True, **options)
    return found


CLAIMS = (
    Claim(
        "accuracy, points: with hard labels of a ResNet − without teacher",
        1,
        "+2.3, +1.3 and +1.6",
        measures.points("accuracy", "ViT, hard", "ViT"),
    ),
    Claim(
        "accuracy, points: taught by a ResNet − by a ViT",
        1,
        "table 2: convolutional teachers are better",
        measures.points("accuracy", "ViT, hard", "ViT, taught by a ViT"),
    ),
    Claim(
        "accuracy, points: hard − soft labels",
        1,
        "table 3: hard labels are better",
        measures.points("accuracy", "ViT, hard", "ViT, soft"),
    ),
)


def draw(figure, results) -> None:
    """Plots a point per training and a line at the mean, of teachers and students."""
    measures.draw_points(figure.subplots(), results, measures.ACCURACY)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measures.accuracy,
    claims=CLAIMS,
    columns=[measures.ACCURACY],
    draw=draw,
    size=(7, 4.5),
    notes="All have small shifts and rotations, and Mixup: without them, a teacher's "
    "labels of its own training images are the true ones. Without --full the students "
    "have no token of their own for the teacher's labels; with it there is no second "
    "teacher, and there are no soft labels. ",
)
