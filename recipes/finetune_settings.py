"""The settings of `finetune.py`: its options and presets.

Imports neither Keras nor kerasvit, so that a command is read before they are.
"""

import dataclasses
import functools
from typing import ClassVar, Literal


@dataclasses.dataclass(frozen=True)
class Config:
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    model: str | None = None  # "small", or one of kerasvit.list_models(); None: "small"
    #     without weights, else the model that the folder of the weights is of
    weights: str | None = None  # public name, file or folder; None: fresh weights
    dataset: str = "digits"  # "digits", or a name of tensorflow-datasets
    data: str | None = None  # folder of class folders of images, in place of `dataset`
    image_size: tuple[int] | tuple[int, int] | None = None  # pixels, height first
    # None: by the task, as defaults.py has it; a table shows the value and why.
    augment: Literal["none", "shift", "photo"] | None = None  # of augmentations.py
    batch_size: int | None = None  # images a step
    optimizer: Literal["adamw", "sgd"] | None = None  # sgd: with momentum 0.9
    learning_rate: float | None = None  # after the warm-up; then a cosine to 0
    rho: float | None = None  # radius of SAM, ≥ 0; 0 trains without
    linear_head: bool | None = None  # start with a head fitted to frozen features
    warmup_steps: int | None = None  # rising from 0, at most a fifth of the training
    steps: int | None = None  # of the optimizer, warm-up included
    epochs: int | None = None  # passes through the training images, in place of `steps`
    compare: bool = False  # train without SAM too, keep the better; the demo does
    dropout: float = 0.0  # rate in the blocks, in [0, 1)
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"  # of Keras
    seed: int = 0  # of fresh weights, order, augmentation and dropout
    license: str | None = None  # of the model, for its card; None: that of the weights
    out: str | None = None  # folder of the results; None: runs/NAME-BACKEND

    small: ClassVar = ("small",)  # models of finetune.py itself


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
PRESETS = {  # those of the paper have no SAM, and need weights: of ImageNet-21k there
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
