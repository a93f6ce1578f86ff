"""The options of the benchmarks and of the study.

Imports neither Keras nor kerasvit, so that a command is read before they are.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import command_line
import names
import startup
import tyro

MODELS = {"train": ("ViTS16",), "sam": ("ViTS16", "BiTR50x1")}  # else ViTB16
ROUNDS = {"sam": 3}  # else 7
WARMUP = {"forward": 2, "train": 2}  # else 1
ON_EVERY_BACKEND = ("sam", "load", "import")
WITH_MEMORY = ("sam", "load")


@dataclasses.dataclass(frozen=True)
class Config:
    """Times kerasvit on this machine, beside other libraries."""

    what: Annotated[
        Literal["forward", "train", "sam", "load", "import", "data", "table"],
        tyro.conf.Positional,
    ]
    """forward: inference; train: an AdamW step; sam: steps of SAM and its kin; load: a
    model from its file; import: kerasvit; data: the input pipeline; table: no
    measurement but the results so far, as Markdown."""
    model: str | None = None
    """One of kerasvit.list_models(); default ViTB16 for forward and load, ViTS16 for
    train, and for sam both ViTS16 and BiTR50x1."""
    image_size: int | None = None
    """Pixels; default the model's own."""
    batch_size: int = 8
    """Images a step."""
    rounds: int | None = None
    """Timed steps of each contender; default 7, of sam 3."""
    warmup: int | None = None
    """Steps of each before, which compile; default 1, of forward and train 2."""
    dtype: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the Keras models; timm runs in float32 or under autocast."""
    memory_of: str | None = None
    """Of sam and load: only print the bytes that a row of the table takes."""
    folder: str | None = None
    """Of load: a folder that save_pretrained wrote; default that of a new model. Of
    data: a folder of class folders of images; default generated photographs."""


@dataclasses.dataclass(frozen=True)
class Study:
    """Trains a small ViT, Mixer and BiT from scratch, with SAM and without."""

    dataset: str = "mnist_subset"  # of built_in.py, or a name of tensorflow-datasets
    data: str | None = None  # folder of class folders of images, in place of `dataset`
    epochs: int | None = None  # of every training; None: as in the presets study_…
    seeds: int = 3  # trainings of each kind
    curved_images: int = 500  # training images whose loss's curvature is taken
    out: str | None = None  # folder of the results; None: runs/study-…


def read(arguments: Sequence[str]) -> Config:
    """The configuration of a command, checked before anything slow is imported.

    Raises:
        command_line.BadInput: An option, a number, the backend or a path is wrong.
    """
    config = command_line.parse_options(
        arguments,
        Config,
        prog="python -m recipes.benchmarks",
        description=Config.__doc__,
    )
    with command_line.checking_input():
        command_line.check_numbers(config)
        if config.model is not None:
            names.check_model(config.model)
        if config.memory_of is not None and config.what not in WITH_MEMORY:
            raise ValueError(
                f"`--memory-of` is for {' and '.join(WITH_MEMORY)}. Received: "
                f"{config.what} --memory-of {config.memory_of}."
            )
        if config.folder is not None and not Path(config.folder).is_dir():
            raise ValueError(f"`folder`: there is no folder {config.folder}.")
        if config.what == "table":
            return config
        if "KERAS_BACKEND" in os.environ or config.what not in ON_EVERY_BACKEND:
            startup.check_backend()
        if config.what == "data":
            startup.check_reader()
    return config


def read_study(arguments: Sequence[str]) -> Study:
    """The settings of a study, checked before anything slow is imported.

    Raises:
        command_line.BadInput: As for `command_line.checked`.
    """
    study = command_line.parse_options(
        arguments,
        Study(),
        prog="python -m recipes.benchmarks.study",
        description=Study.__doc__,
    )
    return command_line.checked(study)


def counts(config: Config) -> dict[str, int]:
    """The number of timed rounds and of those before, given or by default."""
    return {
        "rounds": _count(config.rounds, ROUNDS.get(config.what, 7), 1, "rounds"),
        "warmup": _count(config.warmup, WARMUP.get(config.what, 1), 0, "warmup"),
    }


def _count(number, default, least, option):
    if number is not None and number < least:
        sys.exit(f"`--{option}` must be at least {least}. Received: {number}.")
    return default if number is None else number
