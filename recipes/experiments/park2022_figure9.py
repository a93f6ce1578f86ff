"""Figure 9 of Park and Kim 2022, arXiv 2202.06709: attention averages features."""

from . import branches
from .experiment import Claim, Experiment

PAPER = """
Attention lowers the variance of feature maps over their positions, MLPs and
convolutions raise it; the variance accumulates in a ResNet up to its end.
"""


def _change(label, kind):
    return lambda seed: seed[label]["variance_change"][kind]


CLAIMS = (
    Claim(
        "log change of the variance by an attention of the ViT",
        -1,
        "figure 9: it falls",
        _change("ViT", "attention"),
    ),
    Claim(
        "log change of the variance by an MLP of the ViT",
        1,
        "figure 9: it rises",
        _change("ViT", "other"),
    ),
    Claim(
        "log change by an attention of the AlterNet, less that by a convolution",
        -1,
        "section 4: AlterNet alternates both",
        lambda s: (
            s["AlterNet"]["variance_change"]["attention"]
            - s["AlterNet"]["variance_change"]["other"]
        ),
    ),
)
EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=branches.subjects,
    measure=branches.measure,
    claims=CLAIMS,
    columns=branches.columns("variance"),
    draw=branches.draw("variance", "variance of the features"),
    size=(10, 4),
)
