"""Figure 8 of Park and Kim 2022, arXiv 2202.06709: attention removes frequencies."""

from . import branches
from .experiment import Claim, Experiment

PAPER = """
Attention lowers the amplitude of high frequencies, MLPs and convolutions raise it.
The paper shows ViT-Ti, and the figure's grey areas are the attention layers.
"""


def _change(label, kind):
    return lambda seed: seed[label]["amplitude_change"][kind]


CLAIMS = (
    Claim(
        "change of the highest frequency by an attention of the ViT, log",
        -1,
        "figure 8: it falls",
        _change("ViT", "attention"),
    ),
    Claim(
        "change by an MLP of the ViT, log",
        1,
        "figure 8: it rises",
        _change("ViT", "other"),
    ),
    Claim(
        "change by an attention of the AlterNet, log, less that by a convolution",
        -1,
        "section 4: AlterNet alternates both",
        lambda s: (
            s["AlterNet"]["amplitude_change"]["attention"]
            - s["AlterNet"]["amplitude_change"]["other"]
        ),
    ),
)
EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=branches.subjects,
    measure=branches.measure,
    claims=CLAIMS,
    columns=branches.columns("amplitude"),
    draw=branches.draw("amplitude", "Δ log amplitude of the highest frequency"),
    size=(10, 4),
)
