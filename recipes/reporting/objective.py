"""What a model was trained on and with: changed images, soft labels, an L2 term."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import keras
from command.names import check_name
from scoring.candidates import Candidate, weights_of
from training import training_data
from training.optimizers import CLASSES, sigmoid
from training.settings import Common

from kerasvit.data import AUGMENTATIONS, TrainingImages

BATCH = 16  # images
OPTIONS = ("augment", "mixup", "cutmix", "label_smoothing", "weight_decay")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss of a training, on images and labels as the training changes them.

    Attributes:
        facts: What the page says about it, and what it depends on, as JSON has it.
        batches: Function that returns batches (x, y) of `BATCH` images, with labels
            (images, classes).
        loss: Loss of these labels and the outputs of the model.
        weight_decay: λ of the L2 term, ≥ 0.
        unsquared: Whether the term is λ Σ‖w‖ and not λ/2 Σ‖w‖².
    """

    facts: dict
    batches: Callable[[], list[tuple]]
    loss: Callable
    weight_decay: float
    unsquared: bool


def of(config, name: str, candidate: Candidate, images, probabilities: bool):
    """Returns the objective of a model.

    Args:
        config: `inspection_settings.Config`, whose `OPTIONS` replace what the folder of
            the training tells.
        name: Name of the model on the command line.
        candidate: The model.
        images: Images with the labels of the model.
        probabilities: Whether the model returns probabilities.

    Raises:
        ValueError: The augmentation does not fit the size of the images.
    """
    stored = _stored(name)
    given = {n: getattr(config, n) for n in OPTIONS if getattr(config, n) is not None}
    settings = _settings({**stored, **given})
    augmentation = training_data.augmentation(settings)
    augmentation.larger(candidate.transform.size)  # raises
    sources = ["config.json"] * bool(stored) + ["options"] * bool(given)
    is_sigmoid = stored.get("loss") == "sigmoid"

    def batches():
        found = TrainingImages(images).batches(
            candidate.transform,
            min(BATCH, len(images)),
            augmentation,
            config.seed,
            normalize=candidate.normalize,
            classes=candidate.classes,
        )
        found = found.with_epochs_of(max(1, len(images) // BATCH))
        return [*found.as_numpy_iterator()]

    soft = keras.losses.CategoricalCrossentropy(
        from_logits=not probabilities, label_smoothing=settings.label_smoothing
    )
    facts = {
        **_facts(settings, augmentation),
        "loss": "sigmoid" if is_sigmoid else "softmax",
        "l2": config.l2,
        "from": " and ".join(sources) or "nothing",
    }
    return Objective(
        facts,
        batches,
        sigmoid if is_sigmoid else soft,
        settings.weight_decay,
        config.l2 == "norms",
    )


def _stored(name):
    """Returns the settings in the folder of a training; {} for other models."""
    model = Path(os.path.expanduser(weights_of(name)))
    run = model.resolve().parent
    is_run = model.name == "model" and (run / "result.json").is_file()
    if not is_run or not (run / "config.json").is_file():
        return {}
    return json.loads((run / "config.json").read_text(encoding="utf-8"))


def _settings(found):
    """Returns the settings of a training, complete."""
    fields = {field.name for field in dataclasses.fields(Common)}
    known = {name: value for name, value in found.items() if name in fields}
    settings = dataclasses.replace(Common(), **known)
    augment, weight_decay = settings.augment or "none", settings.weight_decay
    check_name("augment", augment, AUGMENTATIONS)
    if weight_decay is None:  # Keras's
        weight_decay = settings.optimizer and CLASSES[settings.optimizer]().weight_decay
    return dataclasses.replace(
        settings, augment=augment, weight_decay=weight_decay or 0.0
    )


def _facts(settings, augmentation):
    return {
        "augment": settings.augment,
        "rand_augment": augmentation.magnitude,
        "erasing": augmentation.erasing,
        "repeats": augmentation.repeats,
        "resize": augmentation.resize,
        "mixup": augmentation.mixup,
        "cutmix": augmentation.cutmix,
        "label_smoothing": settings.label_smoothing,
        "weight_decay": settings.weight_decay,
        "teacher": settings.teacher,
    }
