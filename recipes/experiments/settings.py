"""Options of `reproduce.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
from typing import Annotated

import tyro

from . import catalogue

DEFAULTS = {"dataset": "mnist_subset", "steps": 300}  # of miniatures


@dataclasses.dataclass(frozen=True)
class Settings:
    """Reproduces a figure or a table of a paper, in miniature or with --full."""

    # list, or an experiment that it prints
    name: Annotated[str, tyro.conf.Positional]
    # of names.BUILT_IN, or of tensorflow-datasets; None: mnist_subset, and with --full
    # that of the paper
    dataset: str | None = None
    data: str | None = None  # folder of class folders, instead of `dataset`
    steps: int | None = None  # of each training; None: 300, and with --full the paper's
    seeds: int = 3  # trainings of each kind; an interval needs at least 2
    jobs: int = 1  # processes that train side by side, each in one thread
    # models of the experiment that compares sizes; None: the first of each family
    sizes: tuple[str, ...] | None = None
    # of the training images, for the experiments about their number
    shares: tuple[float, ...] | None = None
    full: bool = False  # the paper's models, data and length; prints the time first
    yes: bool = False  # begin what --full has announced
    out: str = "runs/experiments"  # folder of trainings and pages

    def check(self) -> None:
        """Raises a `ValueError` for an unknown name, or settings that contradict."""
        catalogue.check(self.name)
        for option in catalogue.OF_SOME:
            if getattr(self, option) == ():
                raise ValueError(f"`{option}`: give one or more, or leave it out.")
        if any(not 0 < share <= 1 for share in self.shares or ()):
            raise ValueError(f"`shares` must be in (0, 1]. Received: {self.shares}.")
        if self.yes and not self.full:
            raise ValueError("`yes` confirms --full. Give both, or neither.")
        if self.jobs > 1 and self.full:
            raise ValueError(
                "`jobs`: a training of --full takes the whole device. Start the same "
                "command on other devices instead: they share the trainings of --out."
            )
