"""BiT-HyperRule: settings of a fine-tuning from the number and the size of the images.

    config, reasons = hyperrule.of(config, count, dataset)    # for --rule hyperrule

Kolesnikov et al. 2020, arXiv 1912.11370, section 3.3, as in bit_hyperrule.py and
bit_jax/train.py of google-research/big_transfer. The rule is that of BiT, and can be
used with any model.
"""

import dataclasses

import numpy as np

from kerasvit.data import SAMPLE

SMALL_AREA = 96 * 96  # pixels
# (resize, crop) for images of less than SMALL_AREA pixels, and for others. 512 and 480
# are those of the code; the paper's text has 448 and 384.
SIZES = (160, 128), (512, 480)
RATE, BATCH_SIZE = 0.003, 512
EVALUATION = {"mode": "squash", "crop": 1.0}  # resized to a square, not cropped


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


def of(config, count: int, dataset):
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
