"""Learning rate schedules."""

from keras.optimizers.schedules import CosineDecay

from kerasvit.arguments import ArgumentError, integer, number


def warmup_cosine(
    peak: float, *, steps: int, warmup_steps: int, final: float = 0.0
) -> CosineDecay:
    """Returns a learning rate schedule with linear warm-up and cosine decay.

    ViT is fine-tuned with this schedule and `warmup_steps=500`, or 100 for 500 steps in
    all (google-research/vision_transformer, vit_jax/utils.py and
    vit_jax/configs/common.py). The schedule is a class of Keras, so that it is saved
    with the optimizer.

    Args:
        peak: Highest learning rate, reached at step number `warmup_steps`; > 0.
        steps: Number of optimizer steps, warm-up included; ≥ 1. Keras counts a batch
            as a step even under `gradient_accumulation_steps`.
        warmup_steps: Number of steps of the warm-up, which begins with the rate 0; ≥ 0,
            fewer than `steps`.
        final: Learning rate from step number `steps` on, in [0, peak].

    Raises:
        ValueError: An argument is out of its range.
    """
    peak = number("peak", peak, positive=True, meaning="the highest learning rate")
    steps = integer("steps", steps, 1, meaning="the steps of the whole training")
    warmup_steps = integer(
        "warmup_steps", warmup_steps, 0, steps - 1, meaning="a part of `steps`"
    )
    final = number("final", final, 0, meaning="the last learning rate")
    if final > peak:
        raise ArgumentError(
            f"`final` must be at most `peak`, {peak}. Received: final={final}.", "final"
        )
    return CosineDecay(
        # Without a `warmup_target` Keras starts from the first argument and does not
        # divide by `warmup_steps`.
        0.0 if warmup_steps else peak,
        steps - warmup_steps,
        alpha=final / peak,
        warmup_target=peak if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
