"""Learning rates of `finetune.py` and `pretrain.py` by the optimizer's steps."""

import keras


def schedule(config, steps: int) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate of the settings for a training of `steps` steps.

    Raises:
        ValueError: The rate would decrease after the last step.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            # Without a `warmup_target` Keras starts from the first argument.
            peak * config.warmup_from if warmup else peak,
            steps - warmup,
            alpha=config.final_rate,
            warmup_target=peak if warmup else None,
            warmup_steps=warmup,
        )
    options = {"warmup_steps": warmup, "warmup_from": config.warmup_from}
    if config.schedule == "linear":
        return WarmupLinear(peak, steps=steps, final=config.final_rate, **options)
    at = [
        min(round(x * steps), steps - 1) if x < 1 else int(x) for x in config.decay_at
    ]
    if at[-1] >= steps:
        raise ValueError(
            f"`decay_at`: the training has {steps:,} steps. Received: {at[-1]:,}. Give "
            "smaller numbers, or shares of the steps, such as 0.33 0.67."
        )
    return WarmupSteps(peak, at=at, factor=config.decay_factor, **options)


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
    """Learning rate that rises linearly to a peak and falls linearly.

    Args:
        peak: Highest rate, at step number `warmup_steps`.
        steps: Steps of the training.
        warmup_steps: Steps of the warm-up; 0: the first step has the peak.
        final: Rate from step number `steps` on, as a share of the peak.
        warmup_from: Rate of the first step, likewise.
    """

    def __init__(
        self,
        peak: float,
        *,
        steps: int,
        warmup_steps: int,
        final: float = 0.0,
        warmup_from: float = 0.0,
    ):
        self.config = {"peak": peak, "steps": steps, "warmup_steps": warmup_steps}
        self.config |= {"final": final, "warmup_from": warmup_from}

    def __call__(self, step):
        steps, warmup_steps = self.config["steps"], self.config["warmup_steps"]
        step = keras.ops.cast(step, "float32")
        falling = keras.ops.maximum((steps - step) / (steps - warmup_steps), 0.0)
        falling = self.config["final"] + (1 - self.config["final"]) * falling
        rising = _rising(step, warmup_steps, self.config["warmup_from"])
        return self.config["peak"] * keras.ops.minimum(rising, falling)

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(self.config)


class WarmupSteps(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to a peak and then decreases in steps.

    Args:
        peak: Highest rate.
        at: Steps after which the rate is multiplied by `factor`: that of the step with
            this number is unchanged, as in google-research/big_transfer,
            bit_hyperrule.py, and in Keras's `PiecewiseConstantDecay`.
        factor: In (0, 1].
        warmup_steps, warmup_from: As for `WarmupLinear`.
    """

    def __init__(
        self,
        peak: float,
        *,
        at: list[int],
        factor: float,
        warmup_steps: int,
        warmup_from: float = 0.0,
    ):
        self.config = {"peak": peak, "at": at, "factor": factor}
        self.config |= {"warmup_steps": warmup_steps, "warmup_from": warmup_from}

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        at = keras.ops.convert_to_tensor(self.config["at"], "float32")
        passed = keras.ops.sum(keras.ops.cast(step > at, "float32"))
        share = keras.ops.power(self.config["factor"], passed)
        warmup_steps, first = self.config["warmup_steps"], self.config["warmup_from"]
        rising = keras.ops.minimum(_rising(step, warmup_steps, first), 1.0)
        return self.config["peak"] * rising * share

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(self.config)


def _rising(step, warmup_steps, first):
    return first + (1 - first) * (step / warmup_steps) if warmup_steps else 1.0
