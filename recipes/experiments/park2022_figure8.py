"""Figure 8 of Park and Kim 2022, arXiv 2202.06709: attention removes frequencies."""

from . import branches

PAPER = """
Attention lowers the amplitude of high frequencies, MLPs and convolutions raise it.
The paper shows ViT-Ti, and the figure's grey areas are the attention layers.
"""
EXPERIMENT = branches.experiment(
    "amplitude",
    "Δ log amplitude of the highest frequency",
    "log change of the highest frequency",
    PAPER,
)
