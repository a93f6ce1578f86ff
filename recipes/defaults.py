"""Settings of `finetune.py` that depend on the task: from which weights, which images.

    config, reasons = defaults.resolve(config, count=360, images="photographs")

A setting that is None is filled in; one that the user or a preset gave stays.
"""

import dataclasses

FROM_PRETRAINED = {  # measured: recipes/README.md, "Defaults"
    "batch_size": (32, "small batches give more updates for the same images"),
    "optimizer": ("adamw", "pretrained weights change little by little"),
    "learning_rate": (3e-5, "a larger rate destroys pretrained weights"),
    "linear_head": (True, "a head of zeros would send random gradients"),
}
SMALL_MODEL = {  # chosen on the validation images of digits
    "batch_size": (64, "the small model, from fresh weights"),
    "optimizer": ("sgd", "the small model, from fresh weights"),
    "learning_rate": (0.2, "the small model, from fresh weights"),
    "linear_head": (False, "fresh features tell nothing yet"),
    "steps": (480, "the small model, from fresh weights"),
}
FRESH = {
    "batch_size": (64, "fresh weights"),
    "optimizer": ("adamw", "fresh weights"),
    "learning_rate": (5e-4, "fresh weights"),
    "linear_head": (False, "fresh features tell nothing yet"),
}
AUGMENT = {  # by the kind of the images
    "photographs": ("photo", "photographs: random crops and flips"),
    "drawings": ("shift", "grey images, maybe writing: small shifts, no flips"),
}
# Images that a training from pretrained weights sees: 4,800 of 400, 132,000 of 100,000.
# With four times as many images 2.3 times as many are seen.
SEEN, OF, GROWTH = 4_800, 400, 0.6
LEAST_STEPS = 60
FRESH_PASSES = 30


def resolve(config, count: int, images: str):
    """The settings with nothing left open, and the reason of each.

    Args:
        config: `finetune.Config`.
        count: Number of training images.
        images: Their kind, a key of `AUGMENT`.

    Returns:
        The configuration, and {setting: reason} in the order in which to print them.
    """
    pretrained = config.weights is not None
    if pretrained:
        chosen = dict(FROM_PRETRAINED)
    else:
        chosen = dict(SMALL_MODEL if config.model in (None, "small") else FRESH)
    chosen["augment"] = AUGMENT[images]
    if config.epochs is None and "steps" not in chosen:
        batch_size = config.batch_size or chosen["batch_size"][0]
        chosen["steps"] = _steps(count, batch_size, pretrained)
    filled, reasons = {}, {}
    for name, (value, reason) in chosen.items():
        given = getattr(config, name) is not None
        filled[name] = getattr(config, name) if given else value
        reasons[name] = "given" if given else reason
    if config.epochs is not None:
        filled["steps"] = config.epochs * max(1, round(count / filled["batch_size"]))
        reasons["steps"] = f"given: {config.epochs} passes through {count:,} images"
    if config.warmup_steps is None:
        filled["warmup_steps"] = min(50, filled["steps"] // 10) if pretrained else 50
    reasons["rho"] = "SAM, two passes a step" if config.rho else "without SAM"
    return dataclasses.replace(config, **filled), reasons


def _steps(count, batch_size, pretrained):
    seen = SEEN * (count / OF) ** GROWTH if pretrained else FRESH_PASSES * count
    steps = max(LEAST_STEPS, round(seen / batch_size))
    return steps, f"{steps * batch_size / count:.1f} passes through {count:,} images"
