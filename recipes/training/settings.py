"""Settings that `finetune.py` and `pretrain.py` share, in groups.

A recipe's `Config` has the groups as base classes, so that `config.rho` is the option
`--rho`; a recipe declares a setting again for another default. The name of a group is
the title of its options in `--help`, and the comment beside or above a setting, or the
string below it, is its text there.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
from typing import Literal

OPTIMIZERS = Literal[
    "adamw", "sgd", "adam", "nadam", "lamb", "lion", "muon", "rmsprop", "adafactor"
]


WITH_MOMENTUM = ("sgd", "rmsprop", "muon")  # `momentum` is an argument of these

AUGMENT = Literal[  # kerasvit.data.AUGMENTATIONS
    *("none", "shift", "photo", "photo_mixed", "cifar", "cifar_mixed"),
    *("augreg_none", "augreg_light1", "augreg_light2", "augreg_medium1"),
    *("augreg_medium2", "augreg_strong1", "augreg_strong2"),
    *("deit", "swin", "imagenet_vit", "resize_crop"),
]


# Settings that do not change the training: its folder and its card do not state them.
NOT_TRAINING = (
    *("out", "license", "devices", "save_minutes", "tensorboard"),
    *("remat", "dry_run", "summary"),
)
METHODS = {  # {--method: {setting: argument of its trainer}}
    "sam": {"sam_every": "every"},
    "asam": {"sam_every": "every", "sam_eta": "eta"},
    "gsam": {"sam_every": "every", "sam_alpha": "alpha", "rho_min": "rho_min"},
    "looksam": {"sam_every": "k", "sam_alpha": "alpha"},
    "msam": {},
    "samon": {"sam_every": "every"},
    "friendlysam": {"sam_every": "every"},
}
OF_LABELS = (  # settings of `Common` that an objective without labels refuses
    *("teacher", "label_smoothing", "mixup", "cutmix"),
    *("keep_best", "patience", "then_size", "layer_decay"),
    *("task", "class_weights", "balanced"),
)
METHOD_SETTINGS = sorted(
    {setting for options in METHODS.values() for setting in options}
)
OWN_RADII = ("asam", "msam", "samon")  # the defaults of rho are SAM's


@dataclasses.dataclass(frozen=True)
class Data:
    """Images, and how many are in a step."""

    dataset: str = ""  # of names.BUILT_IN, or of tensorflow-datasets
    # folder of class folders, or table (.csv, .jsonl) of path and label, instead of
    # `dataset`
    data: str | None = None
    # of images in `data`, such as 1 for grey of 16 bits; None: those of the weights
    channels: int | None = None
    # values that stand for 0 and 1; None: those of the files' type
    value_range: tuple[float, float] | None = None
    # of each class, for data without validation images; None: 0.1, or 0.02 of
    # tensorflow-datasets with test images
    validation_share: float | None = None
    classes: tuple[str, ...] | None = None  # names of those that are used; None: all
    share: float = 1.0  # of the training images of each class, in (0, 1]
    share_seed: int = 0  # which images; a smaller share is part of a larger one
    same_steps: bool = False  # epochs and default steps are those of all images
    batch_size: int | None = None  # images per step


@dataclasses.dataclass(frozen=True)
class Labels:
    """What images are labelled with, and classes that have few of them."""

    # multilabel: an image of the table `data` may have several labels, or none
    task: Literal["single_label", "multilabel"] = "single_label"
    # None: softmax, of several labels sigmoid, also asymmetric; focal: images that are
    # easy count less; adjusted: to the best mean over classes of the accuracy
    loss: Literal["softmax", "sigmoid", "focal", "adjusted", "asymmetric"] | None = None
    # images of rare classes count more, in the loss
    class_weights: Literal["balanced", "effective"] | None = None
    balanced: bool = False  # images of rare classes are seen more often

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict the task."""
        several = self.task == "multilabel"
        if several and not self.data:
            raise ValueError(
                "`task`: several labels per image are read from a table. Give it with "
                "--data labels.csv."
            )
        of_one = {"class_weights": None, "balanced": False, "teacher": None}
        of_one |= {"label_smoothing": 0.0, "few_shot": None}
        for name, default in of_one.items() if several else ():
            if getattr(self, name) != default:
                raise ValueError(
                    f"`{name}` is for one label per image, and --task multilabel has "
                    f"several. Leave out --{name.replace('_', '-')}."
                )
        if self.loss in (("softmax", "adjusted") if several else ("asymmetric",)):
            losses = "sigmoid, focal or asymmetric" if several else "softmax or others"
            raise ValueError(
                f"`loss`: {self.loss} does not fit the task {self.task}. Give --loss "
                f"{losses}."
            )
        if self.label_smoothing and self.loss in ("sigmoid", "adjusted"):
            raise ValueError("`label_smoothing` is for the loss softmax.")


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of images and labels."""

    augment: AUGMENT | None = None  # crops, flips, mixing: recipes/DATA.md
    # they change parts of `augment`, and are as there where they are None
    rand_augment: float | None = None  # magnitude, 10 is usual; 0: off
    mixup: float | None = None  # alpha of Mixup, > 0; 0: off
    cutmix: float | None = None  # alpha of CutMix, in turns with Mixup; 0: off
    erasing: float | None = None  # probability of random erasing, in [0, 1]
    repeats: int | None = None  # how often an image is in a batch, each time changed
    resize: int | None = None  # height in pixels from which resize_crop crops
    label_smoothing: float = 0.0  # for softmax, in [0, 1)


@dataclasses.dataclass(frozen=True)
class Model:
    """The model, before its weights."""

    model: str | None = None  # one of kerasvit.list_models(), or of `small`
    # pixels, height first; None: the model's
    image_size: tuple[int, ...] | None = None
    dropout: float = 0.0  # rate in the blocks, in [0, 1)
    # regular expression of the paths of layers that are not trained
    freeze: str | None = None


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimizer, its highest rate, and the decay of weights."""

    optimizer: OPTIMIZERS | None = None  # of Keras; the decay of all is decoupled
    momentum: float | None = None  # None: 0.9 for sgd, 0 for rmsprop, 0.95 for muon
    learning_rate: float | None = None  # maximum, after the warm-up
    # times the learning rate; without SAM's perturbation. None: Keras's, 0.004 for
    # adamw and muon, 0 for others
    weight_decay: float | None = None
    decayed: Literal["kernels", "all"] = "kernels"  # which weights decay
    # regular expression of the paths of weights that do not decay either
    no_decay: str | None = None
    # a block's rate is this share of the next block's, in (0, 1]; None: one rate
    layer_decay: float | None = None
    clip: float = 1.0  # maximum global gradient norm; 0: no clipping
    ema: float | None = None  # momentum of the averages of weights that are kept

    def check(self) -> None:
        """Raises a `ValueError` for a momentum that the optimizer does not have."""
        if self.momentum is not None and self.optimizer not in WITH_MOMENTUM:
            names = " or ".join(WITH_MOMENTUM)
            raise ValueError(f"`momentum`: give --optimizer {names} with --momentum.")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Number of steps, and the rate in each."""

    steps: int | None = None  # optimizer steps, including the warm-up
    epochs: int | None = None  # passes through the images, instead of `steps`
    schedule: Literal["cosine", "linear", "steps"] = "cosine"  # after the warm-up
    decay_at: tuple[float, ...] | None = None  # steps, or shares of all in (0, 1)
    decay_factor: float = 0.1  # of the rate after each of `decay_at`, in (0, 1]
    final_rate: float = 0.0  # at the end of cosine or linear, share of the maximum
    warmup_steps: int | None = None  # linear; at most a fifth of the training
    warmup_from: float = 0.0  # rate of the first step, share of the maximum

    def check(self) -> None:
        """Raises a `ValueError` for steps at which the rate cannot decay."""
        if self.schedule != "steps":
            return
        at = self.decay_at or ()
        shares = all(each < 1 for each in at)
        steps = all(each >= 1 and each == int(each) for each in at)
        if not (shares or steps) or not at or list(at) != sorted(set(at)):
            raise ValueError(
                "`decay_at`: --schedule steps needs increasing numbers of steps, such "
                "as --decay-at 200 300 400, or shares of all steps, such as --decay-at "
                f"0.33 0.67. Received: {at or None}."
            )
        if self.final_rate:
            raise ValueError("`final_rate` is for the schedules cosine and linear.")


@dataclasses.dataclass(frozen=True)
class SAM:
    """Sharpness-aware minimisation and its successors."""

    rho: float | None = None  # radius of SAM, ≥ 0; 0: no SAM
    # SAM or a successor: kerasvit/training/README.md
    method: Literal[
        "sam", "asam", "gsam", "looksam", "msam", "samon", "friendlysam"
    ] = "sam"
    sam_every: int | None = None  # updates from one SAM step to the next; None: 1, or 5
    sam_alpha: float | None = None  # weight of gsam (None: 0.6) and looksam (None: 0.7)
    sam_eta: float | None = None  # constant of asam, added to the weights; None: 0.01
    rho_min: float | None = None  # gsam: rho at the lowest rate; None: a sixth of rho
    # of the parts of a batch on several devices: each with its own gradient, or all
    # with the mean
    perturbation: Literal["local", "global"] = "local"

    def check(self) -> None:
        """Raises a `ValueError` for options that do not belong to the method."""
        given = [name for name in METHOD_SETTINGS if getattr(self, name) is not None]
        for name in given:
            if name not in METHODS[self.method]:
                methods = [m for m, options in METHODS.items() if name in options]
                raise ValueError(
                    f"`{name}` is an option of --method {' or '.join(methods)}. "
                    f"Received: --method {self.method}."
                )
        if self.rho == 0 and (self.method != "sam" or given):
            name = "method" if self.method != "sam" else given[0]
            raise ValueError(
                f"`{name}`: rho is 0, which is no SAM. Give a radius, --rho."
            )
        if self.rho is None and self.method in OWN_RADII:
            raise ValueError(
                f"`rho`: the default is for SAM, and {self.method} needs another "
                "radius: see kerasvit/training/README.md. Give --rho."
            )
        if None not in (self.rho, self.rho_min) and self.rho_min > self.rho:
            raise ValueError(
                f"`rho_min` must be at most rho, {self.rho}. Received: {self.rho_min}."
            )


@dataclasses.dataclass(frozen=True)
class Distillation:
    """A model whose outputs are learned beside the labels."""

    teacher: str | None = None  # folder, file, hf://, ViTB16/sam, model.keras, ResNet50
    # values that a .keras teacher expects
    teacher_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    distill: Literal["hard", "soft"] = "hard"  # how the teacher's outputs are learned
    alpha: float = 0.5  # weight of the teacher's loss, in [0, 1]; the rest: labels
    tau: float = 3.0  # temperature of soft distillation, > 0


@dataclasses.dataclass(frozen=True)
class Unlabelled:
    """What is learned of images without their labels, by a ViT."""

    # labels; masked: colours of corrupted patches; mae: pixels of patches left out
    objective: Literal["labels", "masked", "mae"] = "labels"
    mask_ratio: float | None = None  # share of hidden patches; None: 0.5, of mae 0.75
    # width, depth and heads of the decoder of mae; None: 512 8 16
    decoder: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Raises a `ValueError` for settings that need labels."""
        if self.objective == "labels":
            return
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in OF_LABELS:
            if getattr(self, name) != defaults[name]:
                raise ValueError(
                    f"`{name}`: the objective {self.objective} has no labels, and "
                    f"one stage. Leave out --{name.replace('_', '-')}, or give it to "
                    "finetune.py afterwards."
                )


@dataclasses.dataclass(frozen=True)
class Resolution:
    """A second stage, with images of another size."""

    # a second stage with images of this size, such as 384; height first
    then_size: tuple[int, ...] | None = None
    then_steps: int | None = None  # None: a tenth of the training's, ≥ 10
    then_epochs: int | None = None  # passes through the images, instead of `then_steps`
    # None: the training's divided by 10 (finetune.py) or 100 (pretrain.py)
    then_learning_rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Device:
    """Precision, devices and memory."""

    # Keras policy
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    devices: str = "all"  # all, a number, or on JAX data=4,model=2
    accumulate: int = 1  # parts in which a step computes its batch, to save memory
    remat: bool = False  # recompute activations in the backward pass, to save memory


@dataclasses.dataclass(frozen=True)
class Run:
    """What is measured, kept and written."""

    dry_run: bool = False  # three steps, then time and memory; writes nothing
    seed: int = 0  # of fresh weights, order, augmentation and dropout
    keep_best: bool = False  # the weights of the best validation instead of the last
    patience: int | None = None  # end after so many validations without a better one
    # training images per class: at each validation, also the accuracy of few-shot
    # least squares on the features (few_shot.py)
    few_shot: tuple[int, ...] | None = None
    save_minutes: float = 10.0  # a state is saved this often, and at each validation
    tensorboard: bool = False  # write events for TensorBoard, too
    license: str | None = None  # of the model, in its card; None: that of the weights
    out: str | None = None  # folder of the results; None: of runs/


@dataclasses.dataclass(frozen=True)
class Common(
    Data,
    Labels,
    Augmentation,
    Model,
    Optimizer,
    Schedule,
    SAM,
    Distillation,
    Resolution,
    Device,
    Run,
):
    """Settings of a training."""

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        Labels.check(self)
        Optimizer.check(self)
        Schedule.check(self)
        SAM.check(self)
        if self.accumulate > 1 and self.rho != 0 and self.perturbation == "global":
            raise ValueError(
                "`accumulate`: the parts of a batch are perturbed one after the other, "
                "and --perturbation global needs the gradient of the whole batch "
                "first. Give --perturbation local, or --remat instead of --accumulate."
            )
        if self.freeze is not None and getattr(self, "lora", None) is not None:
            raise ValueError("`freeze`: --lora freezes all layers already.")
        if self.patience and (self.then_size or getattr(self, "probe_epochs", None)):
            raise ValueError(
                "`patience`: stages (--probe-epochs, --then-size) have a fixed length. "
                "Give --keep-best instead."
            )
