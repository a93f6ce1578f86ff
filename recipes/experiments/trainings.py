"""The trainings of the experiments: small models, or the papers' models.

    config = trainings.of(settings, "ViT", rho=0.1)

In miniature a training has the preset `study_…` of `pretrain.py`, with the images and
the steps of the settings; with `full` it has the paper's preset. Two experiments with
the same settings of a training share it: its folder has a hash of them in its name.
"""

import dataclasses
import functools
import hashlib
import json
import os
import time
from pathlib import Path

import keras
import numpy as np
import pretrain
from devices.devices import ONE
from pretrain import PRESETS
from training import optimizers, stages, training_data
from training.settings import NOT_TRAINING
from training.step_log import NotFinite

import kerasvit

from .settings import DEFAULTS, Settings

SMALL = {
    "ViT": PRESETS["study_vit"],
    "Mixer": PRESETS["study_mixer"],
    "ResNet": PRESETS["study_bit"],
    "ablation": dataclasses.replace(PRESETS["study_vit"], model="small_ablation"),
    **{
        # A zero head on averaged features needs a higher rate to learn in 300 steps.
        name: dataclasses.replace(
            PRESETS["study_vit"], model=f"small_{model}", learning_rate=4e-3
        )
        for name, model in {"AlterNet": "alternet", "twin": "preact"}.items()
    },
    **{
        name: dataclasses.replace(PRESETS["study_vit"], model=f"small_{name.lower()}")
        for name in ("Hybrid", "PiT", "ResNeXt", "Swin")
    },
}
# Presets of arXiv 2106.01548: plain, with SAM, augmented, with both; and of 2202.06709.
PAPER = {
    "ViT": ("vit", "vit_sam", "vit_aug", "vit_sam_aug"),
    "Mixer": ("mixer_vanilla", "mixer_sam", "mixer_aug", "mixer_sam_aug"),
    "ResNet": ("resnet", "resnet_sam"),
    **dict.fromkeys(
        ("ablation", "AlterNet", "twin", "PiT", "ResNeXt", "Swin"),
        ("alternet_cifar100",),
    ),
}
PAPER_MODELS = {  # of presets for several models
    "ablation": "ViTTi4CIFAR",
    "AlterNet": "AlterNet50CIFAR100",
    "twin": "PreActResNet50CIFAR",
    "PiT": "PiTTiCIFAR",
    "ResNeXt": "ResNeXt50CIFAR",
    "Swin": "SwinTiCIFAR",
}
AUGMENTED = {"augment": "shift", "mixup": 0.5}  # of small models
RHO = 0.1  # of small models
SAVE_MINUTES = 0.5
TRAININGS = "trainings"  # their folder
CURVED_IMAGES = 500  # training images for second derivatives
UNTIMED, TIMED = 2, 3  # steps


def of(
    settings: Settings,
    family: str,
    /,
    sam: bool = False,
    augmented: bool = False,
    full: dict | None = None,
    **changes,
) -> pretrain.Config:
    """Returns the settings of a training, but for the seed.

    Args:
        settings: Settings of the experiment.
        family: Key of `SMALL`, and of `PAPER` for --full.
        sam: Whether it is with SAM.
        augmented: Whether images are changed at random, and mixed.
        full: Other settings of `pretrain.Config` with --full, such as the model.
        changes: Other settings of `pretrain.Config`.
    """
    if settings.full:
        name = PAPER[family][sam + 2 * augmented]
        model = {"model": PAPER_MODELS[family]} if family in PAPER_MODELS else {}
        return preset(settings, name, **{**model, **changes, **(full or {})})
    config = dataclasses.replace(SMALL[family], rho=RHO if sam else 0.0)
    steps = settings.steps or DEFAULTS["steps"]
    given = {"steps": steps, "epochs": None, "save_minutes": SAVE_MINUTES}
    given |= {"dataset": DEFAULTS["dataset"], **(AUGMENTED if augmented else {})}
    return dataclasses.replace(config, **{**given, **data_of(settings), **changes})


def vit(model: str):
    """Returns the function `subjects` of one ViT; with --full, of ImageNet-21k.

    Args:
        model: The paper's, with --full.
    """

    def subjects(settings: Settings) -> dict[str, pretrain.Config]:
        if settings.full:
            return {"ViT": preset(settings, "vit_i21k", model=model)}
        return {"ViT": of(settings, "ablation")}

    return subjects


def preset(settings: Settings, name: str, **changes) -> pretrain.Config:
    """Returns the settings of a paper's training, but for the seed.

    Args:
        settings: Settings of the experiment.
        name: Name of the preset of `pretrain.py`.
        changes: Other settings of `pretrain.Config`.
    """
    given = {"steps": settings.steps, "epochs": None} if settings.steps else {}
    return dataclasses.replace(
        PRESETS[name], **{**given, **data_of(settings), **changes}
    )


def data_of(settings: Settings) -> dict:
    """Returns the settings of the images, if they are given."""
    if not (settings.dataset or settings.data):
        return {}
    return {"dataset": settings.dataset or "", "data": settings.data}


def pairs(
    settings: Settings, *models: str, full: dict | None = None
) -> dict[str, pretrain.Config]:
    """Returns {label: training} of models without SAM and with it, "ViT-SAM"."""
    return {
        f"{model}{end}": of(settings, model, sam, full=full)
        for model in models
        for end, sam in (("", False), ("-SAM", True))
    }


def compared(settings: Settings, full: dict | None = None) -> dict:
    """Returns the trainings of arXiv 2106.01548: ResNet; ViT and Mixer ± SAM.

    Args:
        settings: Settings of the experiment.
        full: Settings of the ResNet with --full.
    """
    resnet = {"ResNet": of(settings, "ResNet", full=full)}
    return resnet | pairs(settings, "ViT", "Mixer")


def halves(settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the classes to train on first, and the others, to learn from few images.

    Raises:
        ValueError: There are fewer than four classes.
    """
    dataset = settings.dataset or DEFAULTS["dataset"]
    names = training_data.find(dataset, settings.data).class_names
    if len(names) < 4:
        raise ValueError(
            f"{settings.name} trains on one half of the classes, and measures with the "
            f"other: it needs four classes or more. Received: {', '.join(names)}."
        )
    return tuple(names[: len(names) // 2]), tuple(names[len(names) // 2 :])


def name_of(config: pretrain.Config) -> str:
    """Returns the name of the folder of a training: the model and a hash."""
    facts = dataclasses.asdict(config)
    facts = {key: facts[key] for key in sorted(facts.keys() - set(NOT_TRAINING))}
    if config.data:
        facts["data"] = str(Path(os.path.expanduser(config.data)).resolve())
    if config.teacher and Path(config.teacher).parts[-3:-2] == (TRAININGS,):
        facts["teacher"] = Path(config.teacher).parent.name  # wherever that lies
    numbers = (
        pretrain.SMALL[config.model].numbers if config.model in pretrain.SMALL else 0
    )
    text = json.dumps([facts, numbers, keras.backend.backend()])
    return f"{config.model}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def train(config: pretrain.Config) -> dict:
    """Trains, or continues, and returns what others need of the result."""
    keras.utils.clear_session()
    try:
        found = pretrain.pretrain(config)
    except NotFinite:
        return {"diverged": True}
    # Without labels there is no accuracy.
    return {"accuracy": found.get("accuracy"), "history": found["history"]}


def seconds_per_step(config: pretrain.Config) -> tuple[float, int]:
    """Returns the time of a step on this device, and the number of steps."""
    keras.utils.clear_session()
    dataset = training_data.find_data(config, ONE)
    model = pretrain.build(config, dataset.class_names)
    epochs = None if config.steps else config.epochs
    chosen = dataclasses.replace(config, rho=pretrain.radius(config), epochs=epochs)
    *_, stage = stages.of(chosen, dataset, model)
    trainer = pretrain.compiled(ONE, stage, model)
    batches = stage.batches(ONE, dataset, training_data.fit_options(chosen, model))
    fit = functools.partial(trainer.fit, shuffle=False, verbose=0)
    fit(batches.with_epochs_of(UNTIMED))
    begin = time.perf_counter()
    fit(batches.with_epochs_of(TIMED))
    return (time.perf_counter() - begin) / TIMED, stage.steps


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured: a trained model, or a label alone.

    Attributes:
        label: Its name in the experiment.
        seed: Seed of the training, or of what is random.
        settings: Settings of the experiment.
        config: Settings of its training, with the folder in `out`; None if there is
            no training.
        result: Result of `train`.
    """

    label: str
    seed: int
    settings: Settings
    config: pretrain.Config | None
    result: dict

    @functools.cached_property
    def model(self) -> keras.Model:
        """The trained model."""
        return kerasvit.from_pretrained(Path(self.config.out) / "model")

    @functools.cached_property
    def fresh(self) -> keras.Model:
        """The model before its training, with weights of the same seed."""
        keras.utils.set_random_seed(self.seed)
        return pretrain.build(self.config, self.dataset.class_names)

    @functools.cached_property
    def dataset(self):
        """`kerasvit.data.LabelledImages`, with the share of the training."""
        return training_data.find_data(self.config, ONE)

    def images(self, part: str, count: int = CURVED_IMAGES) -> tuple:
        """Returns images as the model takes them, and their classes.

        They are the same for all seeds and models with the same images.

        Args:
            part: "train", "validation" or "test".
            count: Number of images that are drawn, at most.
        """
        found = getattr(self.dataset, part)
        found = getattr(found, "images", found)
        random = np.random.default_rng(0)
        chosen = random.permutation(len(found))[:count]
        return self.prepared(found.part(np.sort(chosen)))

    def prepared(self, images) -> tuple:
        """Returns `Images` as the model takes them, and their classes."""
        options = training_data.batch_options(self.config, self.model)
        options["batch_size"] = min(options["batch_size"], len(images))
        batches = images.batches(**options)
        return tuple(
            map(np.concatenate, zip(*batches.as_numpy_iterator(), strict=True))
        )

    def on(self, **changes) -> "Subject":
        """Returns the same model on other images, by settings of the data."""
        return dataclasses.replace(
            self, config=dataclasses.replace(self.config, **changes)
        )

    @property
    def normalizes(self) -> bool:
        """Whether batches are to be normalised, because the model does not do it."""
        return training_data.batch_options(self.config, self.model)["normalize"]

    def loss(self) -> keras.losses.Loss:
        """Returns the loss of the training, for logits and class indices."""
        if self.config.loss == "sigmoid":
            return optimizers.SparseSigmoid()
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
