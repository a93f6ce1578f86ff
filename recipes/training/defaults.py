"""Default settings of `finetune.py` that depend on the weights and the images.

    chosen, reasons = defaults.choose(asked, images, model, here)

Settings that are None are replaced; those of the user or a preset are kept.
"""

import dataclasses

from rich.table import Table
from training import hyperrule
from training.progress import console
from training.step_plan import planned_images

import kerasvit

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
SUGGESTED = ("batch_size", "optimizer", "linear_head", "rho", "learning_rate", "steps")


def choose(asked, images, model, here):
    """Returns complete settings, and {setting: reason} of those that were chosen.

    Args:
        asked: `finetune.Config`.
        images: `kerasvit.data.LabelledImages`.
        model: `ImageModel` with its weights.
        here: `devices.Devices`.

    Raises:
        ValueError: As for `resolve`, or the devices cannot share a batch or perturb in
            this way.
    """
    count, config, of_rule = planned_images(asked, images), asked, {}
    if asked.rule:
        config, of_rule = hyperrule.of(asked, count, images)
        size = f"HyperRule: images of {config.image_size[0]} pixels"
        console.print(f"{size}, {of_rule['image_size']} (--image-size).")
    config, reasons = resolve(config, count, images.kind, model, here.count)
    here.check_batch(config.batch_size, config.accumulate)
    here.perturbation(config.perturbation, config.rho)
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

    Raises:
        ValueError: The optimizer is not the default and there is no learning rate.
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


def _check_rate(config, default, filled):
    optimizer, rate = filled["optimizer"], filled["learning_rate"]
    if optimizer != default and config.learning_rate is None:
        raise ValueError(
            f"`--optimizer {optimizer}` needs a `--learning-rate`: the default "
            f"{rate:g} is for {default}."
        )


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
