"""Learning rates over the course of a training."""

import math
import numbers

from keras.optimizers.schedules import CosineDecay


def warmup_cosine(
    peak: float, *, steps: int, warmup_steps: int, final: float = 0.0
) -> CosineDecay:
    """A learning rate that rises in a line from 0 to a peak, then falls as a cosine.

    The fine-tuning schedule of ViT, there with `warmup_steps=500`, or 100 where there
    are 500 steps in all (google-research/vision_transformer, vit_jax/utils.py and
    vit_jax/configs/common.py). It is Keras's own, so it is saved with the optimizer.

    Args:
        peak: Highest learning rate, that of step number `warmup_steps`; > 0.
        steps: Optimizer steps in all, warm-up included; ≥ 1. Keras counts a batch as a
            step even under `gradient_accumulation_steps`.
        warmup_steps: Steps of the warm-up, the first of which has the rate 0; ≥ 0,
            fewer than `steps`.
        final: Learning rate from step number `steps` on, in [0, peak].

    Raises:
        ValueError: An argument is out of its range.
    """
    if not _is(numbers.Real, peak) or peak <= 0:
        _refuse("peak", "a finite number > 0, the highest learning rate", peak)
    if not _is(numbers.Integral, steps) or steps < 1:
        _refuse("steps", "a whole number ≥ 1, the steps of the whole training", steps)
    if not _is(numbers.Integral, warmup_steps) or not 0 <= warmup_steps < steps:
        _refuse(
            "warmup_steps",
            f"a whole number in [0, {steps}), for `steps` counts the warm-up too",
            warmup_steps,
        )
    if not _is(numbers.Real, final) or not 0 <= final <= peak:
        _refuse("final", f"a number in [0, {peak}], the last learning rate", final)
    return CosineDecay(
        # Without warm-up Keras starts from the first argument and divides by no 0.
        0.0 if warmup_steps else float(peak),
        int(steps - warmup_steps),
        alpha=float(final) / float(peak),
        warmup_target=float(peak) if warmup_steps else None,
        warmup_steps=int(warmup_steps),
    )


def _is(kind, value):
    return (
        isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    )


def _refuse(name, expected, value):
    raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}.")
