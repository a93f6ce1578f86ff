"""Figure 7 of Park and Kim 2022, arXiv 2202.06709: windows of attention."""

from . import measures, spectra, trainings
from .experiment import Claim

PAPER = """
Of ViTs whose patches attend to windows of 3 × 3, 5 × 5 or all 8 × 8 patches of
CIFAR-100, that with 5 × 5 has the lowest error, that with 3 × 3 the next, and that
with all patches the highest. Smaller windows have fewer negative eigenvalues early in
training.
"""
WINDOWS = {"3 × 3": 3, "5 × 5": 5, "all": None}


def subjects(settings) -> dict:
    """Returns the trainings of one seed."""
    found = {}
    for label, window in WINDOWS.items():
        options = {"model_options": (f"window={window}",)}
        if settings.full:
            options = {"model": f"ViTTi4CIFAR{f'Local{window}' if window else ''}"}
        found[label] = trainings.of(settings, "ablation", **options)
    return spectra.early(found)


def _error(one, other):
    """Returns a function of a seed: difference of test errors, in points."""
    return measures.points("accuracy", other, one)


CLAIMS = (
    Claim("test error, points: 5 × 5 − all", -1, "figure 7a", _error("5 × 5", "all")),
    Claim("test error, points: 3 × 3 − all", -1, "figure 7a", _error("3 × 3", "all")),
    Claim(
        "test error, points: 5 × 5 − 3 × 3", -1, "figure 7a", _error("5 × 5", "3 × 3")
    ),
    Claim(
        "negative eigenvalues, early, points: 3 × 3 − all",
        -1,
        "figure 7b: fewer",
        spectra.negative("3 × 3", "all"),
    ),
)
EXPERIMENT = spectra.experiment(
    PAPER,
    subjects,
    CLAIMS,
    "The small model has 7 × 7 patches of 4 pixels. "
    "All windows have the same class token. ",
)
