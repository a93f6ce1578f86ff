"""Optimizer, learning rate and loss of `pretrain.py`, as in the papers' code.

`finetune.py` uses `with_layer_decay` and `accumulation`.
"""

import keras

import kerasvit


def make_optimizer(config, model, steps):
    """Returns the optimizer of the settings, with a schedule of `steps` steps."""
    make = kerasvit.warmup_cosine if config.schedule == "cosine" else WarmupLinear
    rate = make(config.learning_rate, steps=steps, warmup_steps=config.warmup_steps)
    common = {
        **accumulation(rate, config.accumulate),
        "weight_decay": config.weight_decay or None,
        "global_clipnorm": config.clip or None,
    }
    if config.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(momentum=0.9, **common)
    else:
        optimizer = keras.optimizers.AdamW(**common)
    if config.decayed == "kernels" and config.weight_decay:
        weights = model.trainable_variables
        others = [weight for weight in weights if weight.name != "kernel"]
        optimizer.exclude_from_weight_decay(var_list=others)
    return with_layer_decay(optimizer, model, config.layer_decay)


def with_layer_decay(optimizer, model, decay):
    """Returns the optimizer with `kerasvit.layer_decay`, if decay is not None."""
    return kerasvit.layer_decay(optimizer, model, decay) if decay else optimizer


def accumulation(rate, parts: int) -> dict:
    """Returns arguments of an optimizer that updates after each `parts` batches.

    Args:
        rate: Schedule of the learning rate, by updates.
        parts: Number of batches of an update.
    """
    if parts == 1:
        return {"learning_rate": rate}
    schedule = PerUpdate(rate, parts)
    return {"learning_rate": schedule, "gradient_accumulation_steps": parts}


class PerUpdate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule by updates; Keras calls a schedule with the number of batches."""

    def __init__(self, schedule, parts: int):
        self.schedule, self.parts = schedule, parts

    def __call__(self, step):
        return self.schedule(step // self.parts)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {"schedule": self.schedule, "parts": self.parts}


class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from 0 to a peak and falls linearly to 0."""

    def __init__(self, peak: float, *, steps: int, warmup_steps: int):
        self.config = {"peak": peak, "steps": steps, "warmup_steps": warmup_steps}

    def __call__(self, step):
        steps, warmup_steps = self.config["steps"], self.config["warmup_steps"]
        step = keras.ops.cast(step, "float32")
        falling = keras.ops.maximum((steps - step) / (steps - warmup_steps), 0.0)
        rising = step / warmup_steps if warmup_steps else 1.0
        return self.config["peak"] * keras.ops.minimum(rising, falling)

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(self.config)


def sigmoid(labels, logits):
    """Returns the sum over classes of the binary cross-entropies, shape (batch,)."""
    each = keras.ops.binary_crossentropy(labels, logits, from_logits=True)
    return keras.ops.sum(each, axis=-1)
