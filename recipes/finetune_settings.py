"""Settings of `finetune.py`: options and presets.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import functools
from typing import ClassVar, Literal


@dataclasses.dataclass(frozen=True)
class Config:
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    model: str | None = None  # "small", or one of kerasvit.list_models(); None: "small"
    #     without weights, else the model that the folder of the weights states
    weights: str | None = None  # public name, file or folder; None: fresh weights
    dataset: str = "digits"  # of built_in.py, or of tensorflow-datasets
    data: str | None = None  # folder of class folders, instead of `dataset`
    share: float = 1.0  # of the training images of each class, in (0, 1]
    share_seed: int = 0  # which images; a smaller share is part of a larger one
    same_steps: bool = False  # epochs and default steps are those of all images
    image_size: tuple[int] | tuple[int, int] | None = None  # pixels, height first
    # None: defaults.py chooses by the task; a table shows value and reason.
    augment: Literal["none", "shift", "photo"] | None = None  # of augmentations.py
    batch_size: int | None = None  # images per step
    optimizer: Literal["adamw", "sgd"] | None = None  # sgd: with momentum 0.9
    learning_rate: float | None = None  # after the warm-up; then a cosine to 0
    # a block's rate is this share of the next block's, in (0, 1]; None: one rate
    layer_decay: float | None = None
    rho: float | None = None  # radius of SAM, ≥ 0; 0 disables SAM
    # of the parts of a batch on several devices: each with its own gradient, or all
    # with the mean
    perturbation: Literal["local", "global"] = "local"
    teacher: str | None = None  # folder, file, hf://, ViTB16/sam, model.keras, ResNet50
    # values that a .keras teacher expects
    teacher_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    distill: Literal["hard", "soft"] = "hard"  # how the teacher's outputs are learned
    alpha: float = 0.5  # weight of the teacher's loss, in [0, 1]; the rest: labels
    tau: float = 3.0  # temperature of soft distillation, > 0
    linear_head: bool | None = None  # start with a head fitted to frozen features
    lora: int | None = None  # rank of adapters in a frozen model; None: train all
    lora_layers: str | None = None  # regular expression of their layers' paths; None:
    #     attention/(query|value)
    train_norms: bool = False  # with lora: also train normalisation layers
    keep_adapters: bool = False  # with lora: save adapters in a file of their own
    warmup_steps: int | None = None  # linear from 0; at most a fifth of the training
    steps: int | None = None  # optimizer steps, including the warm-up
    epochs: int | None = None  # passes through the images, instead of `steps`
    compare: bool = False  # also train without SAM, keep the better model
    dropout: float = 0.0  # rate in the blocks, in [0, 1)
    # Keras policy
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    devices: str = "all"  # all, a number, or on JAX data=4,model=2
    accumulate: int = 1  # parts in which a step computes its batch, to save memory
    remat: bool = False  # recompute activations in the backward pass, to save memory
    dry_run: bool = False  # three steps, then time and memory; writes nothing
    seed: int = 0  # of fresh weights, order, augmentation and dropout
    save_minutes: float = 10.0  # a state is saved this often, and at each validation
    tensorboard: bool = False  # write events for TensorBoard, too
    license: str | None = None  # of the model, in its card; None: that of the weights
    out: str | None = None  # folder of the results; None: runs/NAME-BACKEND

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
