"""Settings of `finetune.py` that depend on the task: from which weights, which images.

    config, reasons = defaults.resolve(config, 360, "photographs", model)

A setting that is None is filled in; one that the user or a preset gave stays.
"""

import dataclasses
import math

import keras
import numpy as np
from heads import heads_of

FROM_PRETRAINED = {  # measured: recipes/README.md, "How the defaults were chosen"
    "batch_size": (32, "small batches give more updates for the same images"),
    "optimizer": ("adamw", "pretrained weights change little by little"),
    "linear_head": (True, "a head of zeros would send random gradients"),
    "rho": (0.002, "SAM, two passes a step; pretrained weights are sharp"),
}
SMALL_MODEL = {  # chosen on the validation images of digits
    "batch_size": (64, "the small model, from fresh weights"),
    "optimizer": ("sgd", "the small model, from fresh weights"),
    "learning_rate": (0.2, "the small model, from fresh weights"),
    "linear_head": (False, "fresh features tell nothing yet"),
    "steps": (480, "the small model, from fresh weights"),
    "rho": (0.05, "SAM, two passes a step"),
}
FRESH = {
    "batch_size": (64, "fresh weights"),
    "optimizer": ("adamw", "fresh weights"),
    "learning_rate": (5e-4, "fresh weights"),
    "linear_head": (False, "fresh features tell nothing yet"),
    "rho": (0.05, "SAM, two passes a step"),
}
AUGMENT = {  # by the kind of the images
    "photographs": ("photo", "photographs: random crops and flips"),
    "drawings": ("shift", "grey images, maybe writing: small shifts, no flips"),
}
# The rate is this share of a typical weight of a model of so many; its least and most.
SHARE, SIZE, RATES = 6e-4, 22e6, (1e-6, 2e-3)
# Images that a training of ViT-S sees: 2,240 of 400 in 70 steps, 323,000 of 100,000.
# Small models learn less of each and take little time: they see up to five times more.
SEEN, OF, GROWTH, MORE = 2_240, 400, 0.9, 5
LEAST_STEPS = 60
FRESH_PASSES = 30


def resolve(config, count: int, images: str, model):
    """The settings with nothing left open, and the reason of each.

    Args:
        config: `finetune.Config`.
        count: Number of training images.
        images: Their kind, a key of `AUGMENT`.
        model: `ImageModel`, with its weights.

    Returns:
        The configuration, and {setting: reason} in the order in which to print them.

    Raises:
        ValueError: Another optimizer is given without its learning rate.
    """
    pretrained = config.weights is not None
    if pretrained:
        chosen = {**FROM_PRETRAINED, "learning_rate": _rate(model)}
    else:
        chosen = dict(SMALL_MODEL if config.model in (None, "small") else FRESH)
    chosen["augment"] = AUGMENT[images]
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


def _check_rate(config, usual, filled):
    optimizer, rate = filled["optimizer"], filled["learning_rate"]
    if optimizer != usual and config.learning_rate is None:
        raise ValueError(
            f"`--optimizer {optimizer}` needs a `--learning-rate`: the default of "
            f"{rate:g} is one for {usual}."
        )


def _rate(model):
    """The rate of AdamW for pretrained weights, and why.

    Adam moves each weight by about the rate, whatever the gradient: so the rate is a
    share of a typical weight, and a smaller one the wider the layers are (Yang et al.
    2022, arXiv 2203.03466), which is by the square root of the number of weights.
    """
    weight, size = _typical_weight(model), model.count_params()
    rate = SHARE * weight * math.sqrt(SIZE / size)
    rate = float(f"{min(max(RATES[0], rate), RATES[1]):.1e}")
    million = f"{size / 1e6:.3g} million"
    return rate, f"small beside {million} pretrained weights of about {weight:.2g}"


def _typical_weight(model):
    """The median over the model's matrices, heads left out, of the root mean square."""
    heads = {id(w) for layer in heads_of(model) for w in layer.weights}
    matrices = [
        keras.ops.convert_to_numpy(w).astype("float32")
        for w in model.trainable_variables
        if len(w.shape) > 1 and id(w) not in heads
    ]
    return float(np.median([np.sqrt(np.mean(np.square(x))) for x in matrices]))


def _steps(count, batch_size, pretrained, size):
    if pretrained:
        more = min(max(1, math.sqrt(SIZE / size)), MORE)
        seen = SEEN * (count / OF) ** GROWTH * more
    else:
        seen = FRESH_PASSES * count
    steps = max(LEAST_STEPS, round(seen / batch_size))
    return steps, f"{steps * batch_size / count:.1f} passes through {count:,} images"
