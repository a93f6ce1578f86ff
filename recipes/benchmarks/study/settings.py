"""Options of the studies.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
from collections.abc import Sequence

from command import command_line


@dataclasses.dataclass(frozen=True)
class Study:
    """Trains a small ViT, Mixer and BiT from scratch, with SAM and without.

    `claim` or `optimizers` as the first argument runs another study: claim --help.
    """

    dataset: str = "mnist_subset"  # of names.BUILT_IN, or of tensorflow-datasets
    data: str | None = None  # folder of class folders, instead of `dataset`
    epochs: int | None = None  # of every training; None: of the presets study_…
    seeds: int = 3  # trainings per model, with and without SAM
    curved_images: int = 500  # training images for the Hessian
    summary: str | None = None  # only write the finished trainings' table into a folder
    out: str | None = None  # folder of the results; None: runs/study-…


@dataclasses.dataclass(frozen=True)
class Claim:
    """Tests with pairs of trainings whether SAM helps small models with few images."""

    dataset: str = "debian_fashion_mnist"  # or another, as in finetune.py
    data: str | None = None  # folder of class folders, instead of `dataset`
    images: int = 10_000  # training images that the shares are of; or all, if fewer
    shares: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)  # of these images
    steps: int = 900  # optimizer steps of every training, for every share
    rhos: tuple[float, ...] = (0.05, 0.1, 0.2)  # tried on the validation images
    seeds: int = 5  # pairs of trainings per model and share, after rho is chosen
    curved_images: int = 500  # training images for the Hessian
    summary: str | None = None  # only write the finished trainings' table into a folder
    out: str | None = None  # folder of the results; None: runs/claim-…

    def check(self) -> None:
        """Raises a `ValueError` for settings that leave nothing to compare."""
        if self.seeds < 2:
            raise ValueError(
                f"`seeds` must be at least 2, for an interval. Received: {self.seeds}."
            )
        check_different(self, "shares", "rhos")


@dataclasses.dataclass(frozen=True)
class Optimizers:
    """Compares SGD, AdamW and SAM on a small ViT and a small BiT, for several rates."""

    dataset: str = "mnist_subset"  # of names.BUILT_IN, or of tensorflow-datasets
    data: str | None = None  # folder of class folders, instead of `dataset`
    steps: int = 200  # optimizer steps of every training
    sgd_rates: tuple[float, ...] = (0.03, 0.1, 0.3)  # maxima of the learning rate
    adamw_rates: tuple[float, ...] = (7e-4, 2e-3, 6e-3)  # the same
    rho: float = 0.1  # radius of SAM
    threshold: float = 0.5  # the steps until the training loss is below are counted
    seeds: int = 3  # trainings per model, optimizer and rate
    summary: str | None = None  # only write the finished trainings' table into a folder
    out: str | None = None  # folder of the results; None: runs/optimizers-…

    def check(self) -> None:
        """Raises a `ValueError` for settings that leave nothing to compare."""
        check_different(self, "sgd_rates", "adamw_rates")
        if self.rho == 0:
            raise ValueError("`rho` must be above 0, for SAM. Received: 0.")


def check_different(study, *names: str) -> None:
    """Raises a `ValueError` for settings that are not one or more different numbers."""
    for name in names:
        values = getattr(study, name)
        if not values or len(set(values)) < len(values):
            given = ", ".join(f"{value:g}" for value in values) or "none"
            raise ValueError(
                f"`{name}` must be different numbers, at least one. Received: {given}."
            )


STUDIES = {"claim": Claim(), "optimizers": Optimizers()}


def read(arguments: Sequence[str]) -> Study | Claim | Optimizers:
    """Returns the settings of a study, checked before the slow imports.

    Raises:
        command_line.BadInput: As for `command_line.checked`.
    """
    arguments = list(arguments)
    name = arguments.pop(0) if arguments and arguments[0] in STUDIES else ""
    default = STUDIES.get(name, Study())
    study = command_line.parse_options(
        arguments,
        default,
        prog=f"python -m recipes.benchmarks.study {name}".strip(),
        description=type(default).__doc__,
    )
    return command_line.checked(study)
