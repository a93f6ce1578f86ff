"""Figure 9 of Park and Kim 2022, arXiv 2202.06709: attention averages features."""

from . import branches

PAPER = """
Attention lowers the variance of feature maps over their positions, MLPs and
convolutions raise it; the variance accumulates in a ResNet up to its end.
"""
EXPERIMENT = branches.experiment(
    "variance", "variance of the features", "log change of the variance", PAPER
)
