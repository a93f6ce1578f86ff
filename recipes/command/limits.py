"""Ranges of the settings that are numbers."""

import math

LIMITS = {  # {setting: (minimum, maximum)}
    "channels": (1, 1000),
    "batch_size": (1, math.inf),
    "batch": (1, math.inf),
    "image_size": (1, math.inf),
    "learning_rate": (1e-12, math.inf),
    "momentum": (0, 0.9999),
    "decay_at": (1e-12, math.inf),
    "decay_factor": (1e-12, 1),
    "final_rate": (0, 1),
    "warmup_from": (0, 1),
    "ema": (0, 1 - 1e-9),
    "patience": (1, math.inf),
    "layer_decay": (1e-12, 1),
    "probe_epochs": (1, math.inf),
    "probe_learning_rate": (1e-12, math.inf),
    "then_size": (1, math.inf),
    "then_steps": (1, math.inf),
    "then_epochs": (1, math.inf),
    "then_learning_rate": (1e-12, math.inf),
    "warmup_steps": (0, math.inf),
    "steps": (1, math.inf),
    "epochs": (1, math.inf),
    "weight_decay": (0, math.inf),
    "clip": (0, math.inf),
    "rand_augment": (0, 100),
    "mixup": (0, math.inf),
    "cutmix": (0, math.inf),
    "erasing": (0, 1),
    "repeats": (1, math.inf),
    "resize": (1, math.inf),
    "rho": (0, math.inf),
    "rho_min": (0, math.inf),
    "sam_every": (1, math.inf),
    "sam_alpha": (0, math.inf),
    "sam_eta": (0, math.inf),
    "alpha": (0, 1),
    "tau": (1e-3, math.inf),
    "micro_batches": (1, math.inf),
    "accumulate": (1, math.inf),
    "label_smoothing": (0, 0.99),
    "lora": (1, math.inf),
    "dropout": (0, 0.99),
    "stochastic_depth": (0, 0.99),
    "save_minutes": (0, math.inf),
    "try_minutes": (0.01, math.inf),
    "share": (1e-12, 1),
    "validation_share": (1e-12, 0.9),
    "share_seed": (0, 2**31 - 1),
    "validations": (1, math.inf),
    "images": (1, math.inf),
    "train_images": (2, math.inf),
    "few_shot": (1, math.inf),
    "shots": (1, math.inf),
    "seeds": (1, 100),
    "jobs": (1, 64),
    "port": (0, 2**16 - 1),
    "queue": (1, math.inf),
    "top": (1, math.inf),
    "timeout": (0.001, math.inf),
    "megabytes": (0.001, math.inf),
    "megapixels": (0.001, math.inf),
    "seed": (0, 2**31 - 1),
}


def check(config) -> None:
    """Raises a `ValueError` for a number out of its range."""
    for name in ("image_size", "then_size"):
        value, default = getattr(config, name, None), getattr(type(config), name, None)
        if isinstance(value, tuple) and value != default and len(value) not in (1, 2):
            raise ValueError(
                f"`{name}`: give one side, or height and width. Received: "
                f"{' '.join(map(str, value)) or 'nothing'}."
            )
    for name, (low, high) in LIMITS.items():
        value = getattr(config, name, None)
        numbers = value if isinstance(value, tuple) else (value,)
        numbers = [number for number in numbers if number is not None]
        if not all(low <= n <= high and math.isfinite(n) for n in numbers):
            most = f" and at most {high}" if high < math.inf else ""
            raise ValueError(
                f"`{name}` must be at least {low}{most}. Received: {value}."
            )
