"""Default settings of `finetune.py` that depend on the weights and the images.

    config, reasons = defaults.resolve(config, 360, "photographs", model)

Settings that are None are replaced; those of the user or a preset are kept.
"""

import dataclasses
import math

import keras
import numpy as np
from heads import heads_of

FROM_PRETRAINED = {  # measured: recipes/README.md, "How the defaults were chosen"
    "batch_size": (32, "small batches give more updates for the same images"),
    "optimizer": ("adamw", "pretrained weights change in small steps"),
    "linear_head": (True, "a head of zeros would send random gradients"),
    "rho": (0.002, "SAM, two passes a step; pretrained weights are sharp"),
}
LORA_RATE = 2e-3, "adapters begin at zero, beside frozen weights"
SMALL_MODEL = {  # chosen on the validation images of digits
    "batch_size": (64, "the small model, from fresh weights"),
    "optimizer": ("sgd", "the small model, from fresh weights"),
    "learning_rate": (0.2, "the small model, from fresh weights"),
    "linear_head": (False, "features of fresh weights are random"),
    "steps": (480, "the small model, from fresh weights"),
    "rho": (0.05, "SAM, two passes a step"),
}
FRESH = {
    "batch_size": (64, "fresh weights"),
    "optimizer": ("adamw", "fresh weights"),
    "learning_rate": (5e-4, "fresh weights"),
    "linear_head": (False, "features of fresh weights are random"),
    "rho": (0.05, "SAM, two passes a step"),
}
AUGMENT = {  # by the kind of the images
    "photographs": ("photo", "photographs: random crops and flips"),
    "drawings": ("shift", "grey images, maybe writing: small shifts, no flips"),
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


def resolve(config, count: int, images: str, model, devices: int = 1):
    """Replaces the settings that are None.

    Args:
        config: `finetune_settings.Config`.
        count: Number of training images.
        images: Kind of the images, a key of `AUGMENT`.
        model: `ImageModel` with its weights.
        devices: Number of devices that share a batch.

    Returns:
        The configuration, and {setting: reason} in the order of the printed table.

    Raises:
        ValueError: The optimizer is not the default and there is no learning rate.
    """
    pretrained = config.weights is not None
    if pretrained:
        rate = LORA_RATE if config.lora else _learning_rate(model)
        chosen = {**FROM_PRETRAINED, "learning_rate": rate}
    else:
        chosen = dict(SMALL_MODEL if config.model in (None, "small") else FRESH)
    chosen["augment"] = AUGMENT[images]
    chosen["batch_size"] = _shared(*chosen["batch_size"], devices, config.accumulate)
    if config.epochs is None and "steps" not in chosen:
        batch_size = config.batch_size or chosen["batch_size"][0]
        chosen["steps"] = _steps(count, batch_size, pretrained, model.count_params())
    filled, reasons = {}, {}
    for name, (value, reason) in chosen.items():
        given = getattr(config, name) is not None
        filled[name] = getattr(config, name) if given else value
        reasons[name] = "given" if given else reason
    _check_rate(config, chosen["optimizer"][0], filled)
    if config.epochs is not None:
        filled["steps"] = config.epochs * max(1, round(count / filled["batch_size"]))
        reasons["steps"] = f"given: {config.epochs} × {count:,} images"
    if config.warmup_steps is None:
        filled["warmup_steps"] = min(50, filled["steps"] // 10) if pretrained else 50
    if not filled["rho"]:
        reasons["rho"] = "without SAM"
    return dataclasses.replace(config, **filled), reasons


def _shared(batch_size, reason, devices, parts):
    """Returns the nearest size that the devices can share equally, and the reason."""
    shares = devices * parts
    if batch_size % shares == 0:
        return batch_size, reason
    nearest = max(1, round(batch_size / shares)) * shares
    whose = f"{devices} devices" if parts == 1 else f"{devices} × {parts} parts"
    return nearest, f"{reason}; not {batch_size}, which {whose} cannot share equally"


def _check_rate(config, default, filled):
    optimizer, rate = filled["optimizer"], filled["learning_rate"]
    if optimizer != default and config.learning_rate is None:
        raise ValueError(
            f"`--optimizer {optimizer}` needs a `--learning-rate`: the default "
            f"{rate:g} is for {default}."
        )


def _learning_rate(model):
    """Returns AdamW's learning rate for pretrained weights, and the reason.

    Adam changes each weight by about the learning rate, for any size of the gradient.
    Therefore the rate is a share of a typical weight, and inversely proportional to the
    width (Yang et al. 2022, arXiv 2203.03466), for which the square root of the number
    of weights is used.
    """
    weight, size = _typical_weight(model), model.count_params()
    rate = RATE_SHARE * weight * math.sqrt(REFERENCE_SIZE / size)
    rate = float(f"{min(max(RATE_LIMITS[0], rate), RATE_LIMITS[1]):.1e}")
    million = f"{size / 1e6:.3g} million"
    return rate, f"small beside {million} pretrained weights of about {weight:.2g}"


def _typical_weight(model):
    """Returns the median root mean square of the matrices, without the heads."""
    heads = {id(w) for layer in heads_of(model) for w in layer.weights}
    matrices = [
        keras.ops.convert_to_numpy(w).astype("float32")
        for w in model.trainable_variables
        if len(w.shape) > 1 and id(w) not in heads
    ]
    return float(np.median([np.sqrt(np.mean(np.square(x))) for x in matrices]))


def _steps(count, batch_size, pretrained, size):
    if pretrained:
        factor = min(max(1, math.sqrt(REFERENCE_SIZE / size)), MAX_FACTOR)
        seen = REFERENCE_SEEN * (count / REFERENCE_COUNT) ** GROWTH * factor
    else:
        seen = FRESH_PASSES * count
    steps = max(MIN_STEPS, round(seen / batch_size))
    return steps, f"{steps * batch_size / count:.1f} passes through {count:,} images"
