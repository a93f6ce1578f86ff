"""Settings of `inspection.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import tyro
from command import names
from command.weights import Weights
from reporting.sections import NAMES
from scoring.settings import check_set
from training.settings import AUGMENT

SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """Of the training, for the measure batch-spectrum.

    None: as the config.json in the model's folder says, and without one no changes of
    images and labels, and no L2 term.
    """

    augment: AUGMENT | None = None
    """Changes of the images, as in pretrain.py."""
    mixup: float | None = None
    """alpha of Mixup, > 0; 0: off."""
    cutmix: float | None = None
    """alpha of CutMix, > 0; 0: off."""
    label_smoothing: float | None = None
    """In [0, 1)."""
    weight_decay: float | None = None
    """Weight λ of the L2 term."""
    l2: Literal["squared", "norms"] = "squared"
    """λ/2 Σ‖w‖², or λ Σ‖w‖ as how-do-vits-work has it."""


@dataclasses.dataclass(frozen=True)
class Config(Objective, Weights):
    """Measures one or two models and writes a page about what it found."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional]
    """One or two folders of trainings or of save_pretrained, files of weights,
    model.keras, hf://user/name, or ViTB16/sam for public weights."""
    image_set: Annotated[str, tyro.conf.arg(name="data")] = ""
    """Images: a folder of class folders, a CSV, digits or another data set, as for
    evaluate.py."""
    images: int = 64
    """So many images of the set, always the same; at least 8."""
    only: tuple[str, ...] = ()
    """Names of measures; none: all but plane, which takes 441 forward passes."""
    budget: str | None = None
    """Time such as 90s, 10m or 2h. Measures that would not fit are left out."""
    out: str = "inspected"
    """Folder of the page and the numbers. What is in it is not computed again."""
    seed: int = 0
    """Seed of random vectors, directions and new weights."""
    masks: str | None = None
    """Folder of masks, NAME.png or CLASS/NAME.png of the image CLASS/NAME.jpg, for the
    measure segmentation. Black is the background, other colours are the object."""
    bands: tuple[int, ...] | None = None
    """Of images with other than three channels: those drawn as red, green and blue,
    from 0, such as 3 2 1; or one that is grey. None: the first."""
    batch_size: int = 32
    """Images per pass; it does not change the results."""
    # Values that a .keras model without a record expects.
    model_input: Literal["pixels", "unit", "tf", "torch"] | None = None

    def check(self) -> None:
        """Raises a `ValueError` for settings that are missing or wrong."""
        if not 1 <= len(self.models) <= 2:
            raise ValueError(
                f"`models`: give one or two models. Received: {len(self.models)}."
            )
        if self.images < 8:
            raise ValueError(f"`images` must be at least 8. Received: {self.images}.")
        for name in self.only:
            names.check_name("only", name, NAMES)
        self.seconds  # noqa: B018 (raises for a wrong budget)
        if not self.image_set:
            raise ValueError(
                "`data`: give the images, such as --data photos/ or --data digits."
            )
        if not Path(os.path.expanduser(self.image_set)).exists():
            check_set(self.image_set, "data")
        if self.masks is not None and not Path(os.path.expanduser(self.masks)).is_dir():
            raise ValueError(f"`masks`: there is no folder {self.masks}.")
        if self.masks is None and "segmentation" in self.only:
            raise ValueError("`only`: segmentation needs masks. Give --masks.")
        for name in self.models:
            names.check_model_or_path(name, "models")

    @property
    def seconds(self) -> float | None:
        """The budget in seconds; None: as long as it takes."""
        if self.budget is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", self.budget)
        if not found or not float(found[1]):
            raise ValueError(
                "`budget` must be a time such as 90s, 10m or 2h. Received: "
                f"{self.budget!r}."
            )
        return float(found[1]) * SECONDS[found[2]]
