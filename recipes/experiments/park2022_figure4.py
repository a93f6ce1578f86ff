"""Figure 4 of Park and Kim 2022, arXiv 2202.06709: Hessian spectra, ViT and ResNet."""

from . import spectra, trainings
from .experiment import Claim

PAPER = """
Early in training the loss of a ViT has many negative eigenvalues, that of a ResNet few:
the loss of ViTs is not convex. The magnitudes of a ViT's eigenvalues are smaller. With
6 % of the images the negative eigenvalues get more.
"""
FEW = 0.25  # share of the training images, 0.06 with --full


def subjects(settings) -> dict:
    """Returns the trainings of one seed."""
    return spectra.early(
        {
            "ViT": trainings.of(settings, "ablation"),
            "ResNet": trainings.of(settings, "twin"),
            "ViT, few images": trainings.of(
                settings, "ablation", full={"share": 0.06}, share=FEW, same_steps=True
            ),
        }
    )


def _difference(one, other, key="negative"):
    return lambda s: s[f"{one}, early"][key] - s[f"{other}, early"][key]


CLAIMS = (
    Claim(
        "share of negative eigenvalues, early: ViT − ResNet",
        1,
        "figure 4: many and few",
        _difference("ViT", "ResNet"),
    ),
    Claim(
        "largest eigenvalue, early: ViT − ResNet",
        -1,
        "figure 4: smaller magnitudes",
        _difference("ViT", "ResNet", "largest"),
    ),
    Claim(
        "share of negative eigenvalues of the ViT, early: few images − all",
        1,
        "figure 4, dotted: more with 6 % of the images",
        _difference("ViT, few images", "ViT"),
    ),
)
EXPERIMENT = spectra.experiment(PAPER, subjects, CLAIMS)
