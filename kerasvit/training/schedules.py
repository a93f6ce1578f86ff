"""Learning rate schedules."""

from keras.optimizers.schedules import CosineDecay

from kerasvit.arguments import ArgumentError, integer, number


def warmup_cosine(
    peak: float, *, steps: int, warmup_steps: int, final: float = 0.0
) -> CosineDecay:
    """A learning rate with linear warm-up and cosine decay.

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
    peak = number("peak", peak, positive=True, meaning="the highest learning rate")
    steps = integer("steps", steps, 1, meaning="of the whole training")
    warmup_steps = integer(
        "warmup_steps", warmup_steps, 0, steps - 1, meaning="which `steps` counts too"
    )
    final = number("final", final, 0, meaning="the last learning rate")
    if final > peak:
        raise ArgumentError(
            f"`final` must be at most `peak`, {peak}. Received: final={final}.", "final"
        )
    return CosineDecay(
        # Without warm-up Keras starts from the first argument and divides by no 0.
        0.0 if warmup_steps else peak,
        steps - warmup_steps,
        alpha=final / peak,
        warmup_target=peak if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
