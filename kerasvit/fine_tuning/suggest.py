"""Settings of a training that depend on the weights and the number of images."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, check_built, integer, number
from kerasvit.training import AdamW, warmup_cosine

from . import try_sam as trials
from .heads import heads_of, inner_model
from .labelled import arrays, iterated

CLIP = 1.0  # largest norm of all gradients together
# Measured: recipes/MEASURED.md, "How the defaults were chosen".
PRETRAINED = {
    "batch_size": (32, "small batches give more updates for the same images"),
    "optimizer": ("adamw", "pretrained weights change in small steps"),
    "linear_head": (True, "a head of zeros would send random gradients"),
    "rho": (0.002, "SAM, two passes a step; pretrained weights are sharp"),
}
LORA_RATE = 2e-3, "adapters begin at zero, beside frozen weights"
FRESH = {
    "batch_size": (64, "fresh weights"),
    "optimizer": ("adamw", "fresh weights"),
    "learning_rate": (5e-4, "fresh weights"),
    "linear_head": (False, "features of fresh weights are random"),
    "rho": (0.05, "SAM, two passes a step"),
}
# The learning rate is this share of a typical weight of a model of reference size, and
# lies within these limits.
RATE_SHARE, REFERENCE_SIZE, RATE_LIMITS = 6e-4, 22e6, (1e-6, 2e-3)
# Images in the training of ViT-S: 2,240 for 400 training images (70 steps), and a power
# of the ratio for other numbers: 323,000 for 100,000. Small models learn less from each
# image and are fast: they see up to five times more.
REFERENCE_SEEN, REFERENCE_COUNT, GROWTH, MAX_FACTOR = 2_240, 400, 0.9, 5
MIN_STEPS = 60
FRESH_PASSES = 30
WARMUP = 50  # steps, and at most a tenth of those of a fine-tuning


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingSuggestion:
    """Settings that `suggest_training` chose; it prints as a table with the reasons.

    Attributes:
        learning_rate: Highest learning rate of `optimizer()`.
        batch_size: Images per step.
        steps: Steps of the optimizer, the warm-up included.
        warmup_steps: Steps in which the rate rises from 0; then it falls to 0 as a
            cosine.
        linear_head: Whether to call `kerasvit.fit_head` first.
        rho: Radius for `kerasvit.SAM`, if the training shall be with SAM.
        images: Number of training images. Of batches that state no other number, the
            last counts as whole.
        steps_per_epoch: Steps of one pass through the images.
        reasons: {setting: why it has this value}.
    """

    learning_rate: float
    batch_size: int
    steps: int
    warmup_steps: int
    linear_head: bool
    rho: float
    images: int
    steps_per_epoch: int
    reasons: dict[str, str]

    @property
    def epochs(self) -> int:
        """The number of whole passes through the images that is closest to `steps`."""
        return max(1, round(self.steps / self.steps_per_epoch))

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Returns a new AdamW whose schedule ends after `epochs` epochs.

        Gradients are clipped to a global norm of 1.
        """
        steps = self.epochs * self.steps_per_epoch
        rate = warmup_cosine(
            self.learning_rate,
            steps=steps,
            warmup_steps=min(self.warmup_steps, steps - 1),
        )
        return AdamW(rate, global_clipnorm=CLIP)

    def __repr__(self) -> str:
        values = {
            "optimizer": f"AdamW, gradients clipped to {CLIP:g}",
            "learning_rate": f"{self.learning_rate:g}",
            "batch_size": f"{self.batch_size}",
            "steps": f"{self.steps:,}",
            "warmup_steps": f"{self.warmup_steps:,}",
            "linear_head": "fit_head first" if self.linear_head else "no",
            "rho": f"{self.rho:g}",
        }
        first = max(map(len, values))
        second = max(map(len, values.values()))
        rows = [
            f"{name:{first}}  {value:{second}}  {self.reasons.get(name, '')}".rstrip()
            for name, value in values.items()
        ]
        return "\n".join([f"Training with {self.images:,} images", "", *rows])


def suggest_training(
    model: keras.Model,
    data: Any,
    *,
    batch_size: int | None = None,
    pretrained: bool | None = None,
    adapters: bool | None = None,
    try_sam: float | None = None,
) -> TrainingSuggestion:
    """Suggests learning rate, steps and other settings for a model and its images.

    `recipes/finetune.py` chooses its settings with this function; MEASURED.md beside it
    has what they reach. They are a start, and not a search.

        settings = kerasvit.suggest_training(model, batches)
        print(settings)
        kerasvit.fit_head(model, batches)
        model.compile(settings.optimizer(), loss)
        model.fit(batches, epochs=settings.epochs)

    Adam changes each weight by about the learning rate, for any size of the gradient.
    Therefore the rate for pretrained weights is a share of a typical weight, and
    inversely proportional to the width (Yang et al. 2022, arXiv 2203.03466), for which
    the square root of the number of weights is used.

    Args:
        model: Built model with its weights, or a trainer of it, such as `SAM`.
        data: The number of training images, or the images: those of `kerasvit.data`,
            arrays in a tuple, or batches whose number is known (`len`). These are not
            read but for the size of the first batch, which is the `batch_size` then.
        batch_size: Images per step, if they are given; the steps depend on it.
        pretrained: Whether the weights are trained. None: whether the numbers of any
            vector below the head, such as a bias, differ by 1e-4 or more.
        adapters: Whether only LoRA's adapters and the head will be trained. None: as
            `add_lora` left the model.
        try_sam: Minutes for short trainings with SAM and without, on three quarters of
            the images, which are then read (at most 4,000; at least 40). `rho` is 0
            unless SAM's gain in accuracy on the others is above 0 in each of two pairs
            of trainings or more, and its 95 % interval over the images lies above 0;
            `reasons` has the numbers. None: `rho` is SAM's usual radius, untried.

    Raises:
        ArgumentError: The model is not built or only its head is trained, the number of
            images is not known or zero, or a number is out of its range.
    """
    model = inner_model(model)
    if not hasattr(model, "count_params"):
        check_built(model)
    count, of_data, batches = _count(data)
    if batch_size is None:
        batch_size = of_data
    else:
        batch_size, batches = integer("batch_size", batch_size, 1), None
    if pretrained is None:
        pretrained = not _is_fresh(model)
    if adapters is None:
        adapters = bool(getattr(model, "adapters", None))
    chosen: dict[str, tuple] = dict(PRETRAINED if pretrained else FRESH)
    if pretrained:
        chosen["learning_rate"] = LORA_RATE if adapters else _learning_rate(model)
    if batch_size is not None:
        chosen["batch_size"] = batch_size, "given"
    elif count < chosen["batch_size"][0]:
        chosen["batch_size"] = count, "all images"
    batch_size = chosen["batch_size"][0]
    steps, passes = _steps(count, batch_size, pretrained, model.count_params())
    chosen["steps"] = steps, passes
    warmup_steps = min(WARMUP, steps // 10) if pretrained else WARMUP
    reasons = {name: reason for name, (_, reason) in chosen.items()}
    del chosen["optimizer"]
    found = TrainingSuggestion(
        **{name: value for name, (value, _) in chosen.items()},
        warmup_steps=warmup_steps,
        images=count,
        steps_per_epoch=batches or math.ceil(count / batch_size),
        reasons=reasons,
    )
    return found if try_sam is None else _tried(found, model, data, try_sam)


def _tried(
    found: TrainingSuggestion, model: keras.Model, data: Any, minutes: float
) -> TrainingSuggestion:
    """Returns the suggestion with SAM only if that helps in short trainings."""
    if isinstance(data, int | np.integer):
        raise ArgumentError(
            "`try_sam` trains on the images: give them as `data`. Received: their "
            f"number, {data}.",
            "data",
        )

    def optimizer(steps: int) -> keras.optimizers.Optimizer:
        warmup = min(found.warmup_steps, steps // 10)
        rate = warmup_cosine(found.learning_rate, steps=steps, warmup_steps=warmup)
        return AdamW(rate, global_clipnorm=CLIP)

    trial = trials.try_sam(
        *(model, data),
        optimizer=optimizer,
        rho=found.rho,
        batch_size=found.batch_size,
        steps=found.steps,
        linear_head=found.linear_head,
        minutes=number("try_sam", minutes, positive=True, meaning="minutes"),
    )
    rho = found.rho if trial.helps else 0.0
    reasons = {**found.reasons, "rho": trial.sentence}
    return dataclasses.replace(found, rho=rho, reasons=reasons)


def _count(data: Any) -> tuple[int, int | None, int | None]:
    """Returns the number of images; of batches also the size and the number of these.

    The last batch counts as whole, unless the data state the number of images.
    """
    if isinstance(data, int | np.integer):
        meaning = "the number of training images"
        return integer("data", data, 1, meaning=meaning), None, None
    if isinstance(data, tuple):
        return _checked_count(len(arrays("data", data)[1])), None, None
    if hasattr(data, "batches") and hasattr(data, "__len__"):  # of kerasvit.data
        return _checked_count(len(data)), None, None
    read = iterated("data", data)
    if isinstance(data, keras.utils.PyDataset):
        batches = data.num_batches
    else:
        batches = _length(data) if hasattr(data, "__len__") else None
    if batches is None:
        raise ArgumentError(
            "`data` must be the number of training images, arrays in a tuple (images, "
            "labels), or batches whose number is known. Received: "
            f"{type(data).__name__}. Pass the number.",
            "data",
        )
    first = next(read, None) if batches else None
    size = 0 if first is None else len(first[1])
    held: Any = getattr(data, "dataset", None)  # of torch's DataLoader
    count = len(held) if size and hasattr(held, "__len__") else batches * size
    return _checked_count(count), size, batches


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:  # of tf.data: the number is infinite or not known
        return None


def _checked_count(count: int) -> int:
    if not count:
        raise ArgumentError("`data` has no images.", "data")
    return count


def _is_fresh(model: keras.Model) -> bool:
    """Returns whether all biases and scales below the head are as at the start.

    Some of vit_jax begin with a standard deviation of 1e-6.
    """
    vectors = [
        keras.ops.convert_to_numpy(weight)
        for weight in _below_the_head(model, model.weights)
        if len(weight.shape) == 1 and "float" in str(weight.dtype)
    ]
    return bool(vectors) and all(np.ptp(x) < 1e-4 for x in vectors)


def _below_the_head(model: Any, weights: list) -> list:
    heads = {id(weight) for head in heads_of(model) for weight in head.weights}
    return [weight for weight in weights if id(weight) not in heads]


def _learning_rate(model: Any) -> tuple[float, str]:
    """Returns AdamW's learning rate for pretrained weights, and the reason."""
    weight, size = _typical_weight(model), model.count_params()
    rate = RATE_SHARE * weight * math.sqrt(REFERENCE_SIZE / size)
    rate = float(f"{min(max(RATE_LIMITS[0], rate), RATE_LIMITS[1]):.1e}")
    million = f"{size / 1e6:.3g} million"
    return rate, f"small beside {million} pretrained weights of about {weight:.2g}"


def _typical_weight(model: Any) -> float:
    """Returns the median root mean square of the matrices, without the heads."""
    matrices = [
        keras.ops.convert_to_numpy(weight).astype("float32")
        for weight in _below_the_head(model, model.trainable_variables)
        if len(weight.shape) > 1
    ]
    if not matrices:
        raise ArgumentError(
            "`model` must have trainable matrices below its head. Received: "
            f"{model!r}. `kerasvit.fit_head` alone is the training of a head.",
            "model",
        )
    return float(np.median([np.sqrt(np.mean(np.square(x))) for x in matrices]))


def _steps(
    count: int, batch_size: int, pretrained: bool, size: float
) -> tuple[int, str]:
    if pretrained:
        factor = min(max(1, math.sqrt(REFERENCE_SIZE / size)), MAX_FACTOR)
        seen = REFERENCE_SEEN * (count / REFERENCE_COUNT) ** GROWTH * factor
    else:
        seen = float(FRESH_PASSES * count)
    steps = max(MIN_STEPS, round(seen / batch_size))
    return steps, f"{steps * batch_size / count:.1f} passes through {count:,} images"
