"""Optimizers and learning rates: AdamW, warm-up with cosine decay, decay by layer."""

import re
from collections.abc import Sequence
from typing import Any

import keras
from keras.optimizers.schedules import CosineDecay

from kerasvit.arguments import ArgumentError, check_built, integer, number
from kerasvit.backend.layer_rates import Rates, decays, with_rates
from kerasvit.patterns import ENCODER_BLOCK, STAGE_BLOCK

Base: Any = keras.optimizers.AdamW
if keras.backend.backend() == "torch":
    from kerasvit.backend.torch import optimizers as of_torch

    Base = of_torch.FusedAdamW
elif keras.backend.backend() == "tensorflow":
    from kerasvit.backend.tensorflow import optimizers as of_tensorflow

    Base = of_tensorflow.FusedAdamW


@keras.saving.register_keras_serializable("kerasvit")
class AdamW(Base):
    """`keras.optimizers.AdamW`, with a faster update on PyTorch and TensorFlow.

    On both it is the backend's own operation; on PyTorch for weights of 32 and 64 bits
    on CPUs and GPUs of NVIDIA and AMD, others have a few operations of PyTorch. On JAX
    it is Keras's step. Arguments and variables are those of Keras's class, and weights
    of one optimizer fit to the other. So are the results, but on PyTorch for weights in
    float16, of which squares of gradients are rounded less often.

        trainer.compile(kerasvit.AdamW(1e-5, weight_decay=0.05), loss)

    Reference: Loshchilov and Hutter 2019, arXiv 1711.05101; `torch.optim.AdamW`.
    """


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


def layer_decay(
    optimizer: keras.Optimizer,
    model: keras.Model,
    decay: float,
    *,
    groups: Sequence[str] | None = None,
) -> keras.Optimizer:
    """Returns an optimizer with smaller learning rates in lower layers.

        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05)
        trainer.compile(kerasvit.layer_decay(optimizer, model, 0.75), ...)

    For a model of L blocks, the learning rate of group i is multiplied by
    decay^(L + 1 - i):

        group 0       what precedes the blocks: embedding of patches and positions,
                      tokens, stem; the ResNet of a hybrid
        group i       block i, from 1 to L; in stages, a unit or block of any stage,
                      and for the first of a stage also the merging of Swin and
                      the pooling of PiT before it
        group L + 1   what follows the blocks: last normalisation, pooling, heads

    A step of a weight is that of `optimizer` with the multiplied rate, weight decay
    included. Clipping, moving averages and accumulation do not depend on the rate. MAE
    fine-tunes ViT-B with a decay of 0.65, ViT-L and ViT-H with 0.75 (FINETUNE.md of
    facebookresearch/mae).

    Args:
        optimizer: Any optimizer of Keras or subclass; its settings and its
            `exclude_from_weight_decay` are copied, its variables are not.
        model: Built model whose weights will be trained, or its trainer.
        decay: Ratio of the rates of neighbouring groups, in (0, 1]; 1: equal rates.
        groups: Regular expressions, from the input to the output, for a model of other
            layers: group i has the weights in whose path the i-th is found and no
            earlier one. All other weights are in the last group, with the full rate.
            `[w.path for w in model.weights]` are the paths.

    Returns:
        New optimizer, an instance of `type(optimizer)`. Its files load where kerasvit
        is imported; its variables are those of `optimizer`. Weights that are added to
        the model later have no rate: `fit` raises a `ValueError`.

    Raises:
        ValueError: `decay` is out of its range; the model has no blocks of kerasvit's
            names, and there are no `groups`; an expression matches no weight; the
            optimizer has rates by layer already.

    Reference: Bao et al. 2022, arXiv 2106.08254; microsoft/unilm beit/optim_factory.py,
    facebookresearch/mae util/lr_decay.py, which give the last normalisation the full
    rate. In timm, it is a part of the last block.
    """
    if not isinstance(optimizer, keras.Optimizer):
        raise ArgumentError(
            "`optimizer` must be an optimizer of Keras, such as "
            f"keras.optimizers.AdamW(1e-3). Received: {optimizer!r:.200}.",
            "optimizer",
        )
    check_built(model)
    decay = number("decay", decay, positive=True, meaning="in (0, 1]")
    if decay > 1:
        raise ArgumentError(
            f"`decay` must be in (0, 1]. Received: decay={decay}.", "decay"
        )
    paths = [variable.path for variable in model.weights]
    if groups is None:
        numbers, last = _by_block(paths)
    else:
        numbers, last = _by_pattern(paths, groups)
    rates: Rates = {}
    for variable, i in zip(model.weights, numbers, strict=True):
        rate = decay ** (last - i), decays(optimizer, variable)
        if rates.setdefault(variable.path, rate) != rate:
            raise ArgumentError(
                "The weights of `model` must have different paths. Received: "
                f"{variable.path!r} twice, in two groups. Give the layers other names.",
                "model",
            )
    return with_rates(optimizer, rates)


def _by_block(paths: list[str]) -> tuple[list[int], int]:
    """Returns the group of each path, and the number of the last group."""
    # The ResNet of a hybrid is a part of its embedding, as in timm.
    for pattern in (ENCODER_BLOCK, STAGE_BLOCK):
        names = [
            match and path[: match.end()]
            for path in paths
            for match in [re.search(f"{pattern}(?=/)", path)]
        ]
        blocks = list(dict.fromkeys(name for name in names if name))
        if blocks:
            break
    else:
        raise ArgumentError(
            "`model` must have blocks with the names of kerasvit's layers, such as "
            f"encoder_block_0 or stage_0_unit_0. Received weights: {_shown(paths)}. "
            'For other models pass `groups=["embedding", "block_0/", "block_1/"]`: '
            "regular expressions of paths, from the input to the output.",
            "model",
            "groups",
        )
    numbers = []
    group = len(blocks) + 1
    for name in reversed(names):  # what is between two blocks belongs to the second
        group = blocks.index(name) + 1 if name else group
        numbers.append(group)
    first = names.index(blocks[0])
    return [0] * first + numbers[::-1][first:], len(blocks) + 1


def _by_pattern(paths: list[str], patterns: Any) -> tuple[list[int], int]:
    """Returns the group of each path, and the number of the last group."""
    try:
        compiled = [re.compile(pattern) for pattern in list(patterns)]
    except (re.error, TypeError):
        compiled = []
    if not compiled or isinstance(patterns, str):
        raise ArgumentError(
            "`groups` must be a list of regular expressions of weights' paths. "
            f"Received: {patterns!r:.200}.",
            "groups",
        )
    count = len(compiled)
    numbers = [
        next((i for i, p in enumerate(compiled) if p.search(path)), count)
        for path in paths
    ]
    for i, pattern in enumerate(compiled):
        if i not in numbers:
            raise ArgumentError(
                "Each of `groups` must match a weight that none before it matches. "
                f"Received: {pattern.pattern!r:.200}, for the weights {_shown(paths)}.",
                "groups",
            )
    return numbers, count


def _shown(paths: list[str]) -> str:
    return f"{', '.join(paths[:5])} … {paths[-1]}"
