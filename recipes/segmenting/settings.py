"""Settings of `segmentation.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import os
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from command.weights import Weights


@dataclasses.dataclass(frozen=True)
class Config(Weights):
    """Trains a linear segmentation head on the features of a model."""

    folder: Annotated[str | None, tyro.conf.arg(name="data")] = None
    """Folder with images/NAME.jpg and masks/NAME.png; none: synthetic shapes."""
    model: str | None = None
    """"small", or one of kerasvit.list_models(); none: "small" without weights, else
    the model that the folder of the weights states."""
    weights: str | None = None
    """Public name, file or folder; none: fresh weights."""
    layers: tuple[str, ...] = ()
    """Blocks, stages or strides as in kerasvit.features, such as encoder_block_11 or
    stride_16; none: the last block of each stride."""
    image_size: tuple[int, ...] = ()
    """Pixels, height first, or of a square; none: 48 of the small model, else those of
    the weights."""
    bands: tuple[int, ...] | None = None
    """Of images with other than three channels, as the weights take them: those drawn
    as red, green and blue, from 0, such as 3 2 1; or one that is grey. None: the
    first."""
    train_backbone: bool = False
    """Whether loaded weights are trained; fresh ones always are."""
    steps: int = 250
    batch_size: int = 16
    learning_rate: float | None = None
    """None: 0.002; of loaded weights that are trained 0.0001."""
    weight_decay: float = 0.01
    rho: float = 0.0
    """Radius of SAM; 0: without SAM."""
    images: int = 600
    """Number of synthetic images."""
    validation_share: float = 0.2
    """Share of the images that measures the result."""
    validations: int = 5
    """Number of validations, at which the training is saved."""
    save_minutes: float = 10.0
    """Maximum time between two saved states."""
    out: str | None = None
    """Folder of the results; none: runs/segmentation-DATA-BACKEND."""
    seed: int = 0

    small: ClassVar = ("small",)  # models that segmentation.py defines

    def check(self) -> None:
        """Raises a `ValueError` for settings that are wrong."""
        root = Path(os.path.expanduser(self.folder or "."))
        for part in ("images", "masks") if self.folder else ():
            if not (root / part).is_dir():
                raise ValueError(
                    f"`data`: {root} must hold images/NAME.jpg and masks/NAME.png. "
                    f"There is no folder {part} (working directory: {Path.cwd()})."
                )

    @property
    def trains_backbone(self) -> bool:
        """Whether the weights of the backbone are trained."""
        return self.train_backbone or not self.weights

    @property
    def rate(self) -> float:
        """The maximum learning rate."""
        finetuned = self.weights and self.trains_backbone
        return self.learning_rate or (1e-4 if finetuned else 2e-3)
