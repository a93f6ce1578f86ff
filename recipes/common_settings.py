"""Settings that `finetune.py` and `pretrain.py` share.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Common:
    """Settings of both scripts. A script declares one again for another default."""

    model: str | None = None  # one of kerasvit.list_models(), or of `small`
    dataset: str = ""  # of built_in.py, or of tensorflow-datasets
    data: str | None = None  # folder of class folders, instead of `dataset`
    share: float = 1.0  # of the training images of each class, in (0, 1]
    share_seed: int = 0  # which images; a smaller share is part of a larger one
    same_steps: bool = False  # epochs and default steps are those of all images
    # pixels, height first; None: the model's
    image_size: tuple[int] | tuple[int, int] | None = None
    augment: str | None = None  # of augmentations.py
    batch_size: int | None = None  # images per step
    steps: int | None = None  # optimizer steps, including the warm-up
    epochs: int | None = None  # passes through the images, instead of `steps`
    optimizer: Literal["adamw", "sgd"] | None = None  # sgd: with momentum 0.9
    learning_rate: float | None = None  # maximum, after the warm-up
    warmup_steps: int | None = None  # linear from 0; at most a fifth of the training
    rho: float | None = None  # radius of SAM, ≥ 0; 0: no SAM
    # SAM or a successor: kerasvit/training/README.md
    method: Literal["sam", "asam", "gsam", "looksam", "msam", "samon"] = "sam"
    sam_every: int | None = None  # updates from one SAM step to the next; None: 1, or 5
    sam_alpha: float | None = None  # weight of gsam (None: 0.6) and looksam (None: 0.7)
    sam_eta: float | None = None  # constant of asam, added to the weights; None: 0.01
    rho_min: float | None = None  # gsam: rho at the lowest rate; None: a sixth of rho
    # a block's rate is this share of the next block's, in (0, 1]; None: one rate
    layer_decay: float | None = None
    # of the parts of a batch on several devices: each with its own gradient, or all
    # with the mean
    perturbation: Literal["local", "global"] = "local"
    teacher: str | None = None  # folder, file, hf://, ViTB16/sam, model.keras, ResNet50
    # values that a .keras teacher expects
    teacher_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    distill: Literal["hard", "soft"] = "hard"  # how the teacher's outputs are learned
    alpha: float = 0.5  # weight of the teacher's loss, in [0, 1]; the rest: labels
    tau: float = 3.0  # temperature of soft distillation, > 0
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
    out: str | None = None  # folder of the results; None: of runs/
