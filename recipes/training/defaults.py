"""Default settings of `finetune.py` that depend on the weights and the images.

    chosen, reasons = defaults.choose(asked, images, model, devices)

Settings that are None are replaced; those of the user or a preset are kept.

With --rule hyperrule, most are those of BiT-HyperRule, for any model: Kolesnikov et al.
2020, arXiv 1912.11370, section 3.3, as in bit_hyperrule.py and bit_jax/train.py of
google-research/big_transfer.
"""

import dataclasses

import numpy as np
from rich.table import Table
from training import sam_trial
from training.progress import console
from training.stages import planned_images

import kerasvit
from kerasvit.data import SAMPLE

SMALL_AREA = 96 * 96  # pixels
# (resize, crop) for images of less than SMALL_AREA pixels, and for others. 512 and 480
# are those of the code; the paper's text has 448 and 384.
SIZES = (160, 128), (512, 480)
RATE, BATCH_SIZE = 0.003, 512
EVALUATION = {"mode": "squash", "crop": 1.0}  # resized to a square, not cropped
SMALL_MODEL = {  # chosen on the validation images of digits
    "batch_size": (64, "the small model, from fresh weights"),
    "optimizer": ("sgd", "the small model, from fresh weights"),
    "learning_rate": (0.2, "the small model, from fresh weights"),
    "linear_head": (False, "features of fresh weights are random"),
    "steps": (480, "the small model, from fresh weights"),
    "rho": (0.05, "SAM, two passes a step"),
}
AUGMENT = {  # by the kind of the images
    "photographs": ("photo", "photographs: random crops and flips"),
    "drawings": ("shift", "grey images, maybe writing: small shifts, no flips"),
}
# A small crop may not show what an image is labelled with.
OF_SEVERAL_LABELS = (
    "resize_crop",
    "several labels: crops of most of an image, and flips",
)
SUGGESTED = ("batch_size", "optimizer", "linear_head", "rho", "learning_rate", "steps")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The part of the rule that depends on the number of training images.

    Attributes:
        steps: Number of steps.
        warmup_steps: Steps in which the rate rises linearly from 0.
        decay_at: Steps after which the rate is a tenth of what it was.
        mixup: alpha; 0: off.
    """

    steps: int
    warmup_steps: int
    decay_at: tuple[int, int, int]
    mixup: float


SCHEDULES = {  # {fewer images than this: schedule}
    20_000: Schedule(500, 100, (200, 300, 400), 0.0),
    500_000: Schedule(10_000, 500, (3_000, 6_000, 9_000), 0.1),
    float("inf"): Schedule(20_000, 500, (6_000, 12_000, 18_000), 0.1),
}


def schedule(count: int) -> Schedule:
    """Returns the schedule for a number of training images."""
    return next(found for most, found in SCHEDULES.items() if count < most)


def sizes(area: float) -> tuple[int, int]:
    """Returns (resize, crop) in pixels for images of an area in pixels."""
    return SIZES[area >= SMALL_AREA]


def size_of(asked, dataset) -> tuple[int] | None:
    """Returns the side of the images that the rule chooses, in pixels.

    Args:
        asked: `finetune.Config`. None is returned without a rule.
        dataset: `kerasvit.data.LabelledImages`.
    """
    return (sizes(median_area(dataset))[1],) if asked.rule else None


def median_area(dataset) -> float:
    """Returns the median area of a sample of the training images, in pixels.

    The code of BiT has a table of data sets instead.

    Args:
        dataset: `kerasvit.data.LabelledImages`.
    """
    areas = [np.prod(pixels.shape[:2]) for pixels in dataset.sample()]
    return float(np.median(areas))


def by_rule(config, count: int, dataset):
    """Returns the settings of the rule, and {setting: reason}.

    Image size, batch and learning rate are kept if they are given. The rate of a
    smaller batch is proportional to it; the lighter setting of BiT's README, 128 images
    and a rate of 0.001, is between that and the square root.

    Args:
        config: `finetune.Config`.
        count: Number of training images.
        dataset: `kerasvit.data.LabelledImages`.
    """
    found, area = schedule(count), median_area(dataset)
    resize, crop = sizes(area)
    by_count = f"HyperRule for {count:,} training images"
    sampled = min(SAMPLE, len(dataset.train))
    by_area = f"HyperRule for images of {area:,.0f} pixels, median of {sampled}"
    batch_size = config.batch_size or BATCH_SIZE
    rate = RATE * batch_size / BATCH_SIZE
    size = config.image_size or (crop,)
    chosen = {
        "steps": (found.steps, by_count),
        "warmup_steps": (found.warmup_steps, by_count),
        "decay_at": (found.decay_at, by_count),
        "mixup": (found.mixup, by_count),
        "image_size": (size, by_area),
        "resize": (round(size[0] * resize / crop), by_area),
        "augment": ("resize_crop", "HyperRule: random crops of a square, and flips"),
        "schedule": ("steps", "HyperRule: a tenth of the rate after each of decay_at"),
        "optimizer": ("sgd", "HyperRule: momentum 0.9"),
        "learning_rate": (rate, f"HyperRule: {RATE} for {BATCH_SIZE} images"),
        "batch_size": (batch_size, "HyperRule"),
        "weight_decay": (0.0, "HyperRule"),
        "clip": (0.0, "HyperRule: no clipping"),
        "linear_head": (False, "HyperRule: a head of zeros"),
        "rho": (0.0, "HyperRule: without SAM"),
    }
    kept = ("image_size", "learning_rate", "batch_size", "rho", "linear_head")
    given = {name for name in kept if getattr(config, name) is not None}
    values = {name: each[0] for name, each in chosen.items() if name not in given}
    reasons = {name: each[1] for name, each in chosen.items()}
    reasons |= dict.fromkeys(given, "given")
    return dataclasses.replace(config, **values), reasons


def choose(asked, images, model, devices):
    """Returns complete settings, and {setting: reason} of those that were chosen.

    Args:
        asked: `finetune.Config`.
        images: `kerasvit.data.LabelledImages`.
        model: `ImageModel` with its weights.
        devices: `Devices`.

    Raises:
        ValueError: The devices cannot share a batch or perturb in this way, or are of
            several processes that would have to decide on the method.
    """
    sam_trial.check_processes(asked, devices)
    count, config, of_rule = planned_images(asked, images), asked, {}
    if asked.rule:
        config, of_rule = by_rule(asked, count, images)
        size = f"HyperRule: images of {config.image_size[0]} pixels"
        console.print(f"{size}, {of_rule['image_size']} (--image-size).")
    config, reasons = resolve(config, count, images.kind, model, devices.count)
    devices.check_batch(config.batch_size, config.accumulate)
    devices.perturbation(config.perturbation, config.rho)
    if config.method == "auto" and config.dry_run:  # of the method that takes longer
        config = dataclasses.replace(config, method="sam")
    variant = asked.model or model.record["variant"] or model.name
    return dataclasses.replace(config, model=variant), reasons | of_rule


def resolve(config, count: int, images: str, model, devices: int = 1):
    """Replaces the settings that are None.

    Args:
        config: `finetune.Config`.
        count: Number of training images.
        images: Kind of the images, a key of `AUGMENT`.
        model: `ImageModel` with its weights.
        devices: Number of devices that share a batch.

    Returns:
        The configuration, and {setting: reason} in the order of the printed table.
    """
    pretrained = config.weights is not None
    if not pretrained and config.model in (None, "small"):
        chosen = dict(SMALL_MODEL)
        shared = _shared(*chosen["batch_size"], devices, config.accumulate)
        chosen["batch_size"] = shared
    else:
        chosen = _suggested(config, count, model, devices)
    if config.epochs is not None:
        chosen.pop("steps")
    chosen["augment"] = AUGMENT[images]
    if config.task == "multilabel" and images == "photographs":
        chosen["augment"] = OF_SEVERAL_LABELS
    filled, reasons = {}, {}
    for name, (value, reason) in chosen.items():
        given = getattr(config, name) is not None
        filled[name] = getattr(config, name) if given else value
        reasons[name] = "given" if given else reason
    if config.epochs is not None:
        filled["steps"] = config.epochs * max(1, round(count / filled["batch_size"]))
        reasons["steps"] = f"given: {config.epochs} × {count:,} images"
    if config.warmup_steps is None:
        filled["warmup_steps"] = min(50, filled["steps"] // 10) if pretrained else 50
    if not filled["rho"]:
        reasons["rho"] = "without SAM"
    return dataclasses.replace(config, **filled), reasons


def _suggested(config, count, model, devices):
    """Returns {setting: (value, reason)} of `kerasvit.suggest_training`."""

    def suggest(batch_size):
        pretrained, adapters = config.weights is not None, bool(config.lora)
        return kerasvit.suggest_training(
            *(model, count),
            batch_size=batch_size,
            pretrained=pretrained,
            adapters=adapters,
        )

    found = suggest(config.batch_size)
    reasons = dict(found.reasons)
    if config.batch_size is None:
        shared = _shared(
            found.batch_size, reasons["batch_size"], devices, config.accumulate
        )
        found, reasons["batch_size"] = suggest(shared[0]), shared[1]
    values = {**vars(found), "optimizer": "adamw"}
    return {name: (values[name], reasons[name]) for name in SUGGESTED}


def _shared(batch_size, reason, devices, parts):
    """Returns the nearest size that the devices can share equally, and the reason."""
    shares = devices * parts
    if batch_size % shares == 0:
        return batch_size, reason
    nearest = max(1, round(batch_size / shares)) * shares
    whose = f"{devices} devices" if parts == 1 else f"{devices} × {parts} parts"
    return nearest, f"{reason}; not {batch_size}, which {whose} cannot share equally"


def print_settings(config, reasons: dict) -> None:
    """Prints a table of the settings that depend on the task.

    Args:
        config: Dataclass of the settings, without None for these settings.
        reasons: {setting: reason for its value}.
    """
    table = Table("setting", "value", "why", title="Settings", title_justify="left")
    for name, reason in reasons.items():
        table.add_row(name, f"{getattr(config, name)}", reason)
    console.print(table)
