"""Settings of `finetune.py`: options and presets.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import functools
from typing import ClassVar, Literal

from common_settings import Common


@dataclasses.dataclass(frozen=True)
class Config(Common):
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    # "small", or one of kerasvit.list_models(); None: "small" without weights, else the
    # model that the folder of the weights states
    model: str | None = None
    weights: str | None = None  # public name, file or folder; None: fresh weights
    dataset: str = "digits"  # of built_in.py, or of tensorflow-datasets
    # defaults.py chooses settings that are None by the task; a table shows the reasons
    augment: Literal["none", "shift", "photo"] | None = None  # of augmentations.py
    linear_head: bool | None = None  # start with a head fitted to frozen features
    lora: int | None = None  # rank of adapters in a frozen model; None: train all
    # regular expression of the paths of their layers; None: attention/(query|value)
    lora_layers: str | None = None
    train_norms: bool = False  # with lora: also train normalisation layers
    keep_adapters: bool = False  # with lora: save adapters in a file of their own
    compare: bool = False  # also train without SAM, keep the better model

    small: ClassVar = ("small",)  # models that finetune.py defines

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        if self.lora is not None and not self.weights:
            raise ValueError("`lora`: adapters need pretrained --weights below them.")


paper = functools.partial(  # Dosovitskiy et al. 2021; vit_jax/configs/common.py
    Config,
    model="ViTB16",
    image_size=(384,),
    augment="photo",
    batch_size=512,
    optimizer="sgd",
    linear_head=False,
    rho=0.0,
)
PRESETS = {  # the paper's have no SAM and start from weights of ImageNet-21k
    "digits": Config(compare=True),
    "cifar10": paper(
        dataset="cifar10", learning_rate=0.01, warmup_steps=500, steps=10_000
    ),
    "cifar100": paper(
        dataset="cifar100", learning_rate=0.03, warmup_steps=500, steps=10_000
    ),
    "pets": paper(
        dataset="oxford_iiit_pet", learning_rate=0.03, warmup_steps=100, steps=500
    ),
    "flowers": paper(
        dataset="oxford_flowers102", learning_rate=0.03, warmup_steps=100, steps=500
    ),
    "imagenet": paper(
        dataset="imagenet2012", learning_rate=0.03, warmup_steps=500, steps=20_000
    ),
}
