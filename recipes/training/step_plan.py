"""Number of steps of a training, and of its rounds.

A training consists of rounds with the same number of steps, after which it is
validated. Printed output counts steps, not rounds.
"""

import dataclasses
import math

MAX_ROUNDS, MIN_ROUND_STEPS = 50, 10  # rounds per training, steps per round


def planned_images(config, dataset) -> int:
    """Returns the number of images of an epoch: all, or those of the share."""
    return (config.same_steps and dataset.whole) or len(dataset.train)


def plan(config, count: int) -> tuple[int, int]:
    """Returns (number of rounds, steps per round).

    Args:
        config: Dataclass of the settings.
        count: Result of `planned_images`.
    """
    steps_per_epoch = max(1, round(count / config.batch_size))
    steps = config.steps or config.epochs * steps_per_epoch
    # A round is an epoch, unless there are too many or they have too few steps.
    least = max(steps_per_epoch, MIN_ROUND_STEPS)
    most = getattr(config, "validations", MAX_ROUNDS)
    rounds = min(most, max(1, round(steps / least)))
    round_steps = math.ceil(steps / rounds)
    return math.ceil(steps / round_steps), round_steps


def apply_plan(config, reasons: dict, rounds: int, round_steps: int):
    """Returns the settings with the steps of the plan and a limited warm-up.

    If the number of steps was increased, its reason in `reasons` is extended.
    """
    steps = rounds * round_steps
    warmup = min(config.warmup_steps, steps // 5)
    config = dataclasses.replace(config, warmup_steps=warmup)
    if "steps" not in reasons or config.steps == steps:
        return config
    reasons["steps"] += f"; raised to a multiple of {round_steps}"
    return dataclasses.replace(config, steps=steps)
