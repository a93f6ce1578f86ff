"""Chooses quantizers by the values that they round."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from .quantizers import Quantizer, TwinUniform, Uniform

PERCENTILE = 99.99  # of absolute values; one of those that arXiv 2004.09602 compares
# Parts of the largest absolute value that are tried as the end of the range.
PARTS = 2.0 ** (-np.arange(41) / 8)
BINS, FIRST, EVERY = 2048, 128, 16  # of the histogram of the entropy, and its ends
SHIFTS = range(-8, 17)  # of the scales of a GELU's output
SOFTMAX_SHIFTS = range(20)  # as PTQ4ViT
FACTORS = 3  # the largest exponent of a channel's factor, as FQ-ViT


def of_activations(values: np.ndarray, method: str, bits: int) -> Uniform:
    """Returns the quantizer of a tensor of activations.

    It covers [max(min x, −t), min(max x, t)] and 0, where `method` chooses t.

    Args:
        values: A sample of them, with the smallest and the largest, (count,).
        method: "min_max": t is the largest absolute value; "percentile": the percentile
            99.99 of absolute values; "mse": that with the least squared error, of 41
            from the largest absolute value to 1/32 of it; "entropy": see
            `entropy_limit`.
        bits: Number of bits.
    """
    low, high, sizes = values.min(), values.max(), np.abs(values)

    def within(limit: Any) -> Uniform:
        return Uniform.of_range(max(low, -limit), min(high, limit), bits)

    if method == "mse":
        return best((within(sizes.max() * part) for part in PARTS), values)
    if method == "percentile":
        return within(np.percentile(sizes, PERCENTILE))
    if method == "entropy":
        return within(entropy_limit(sizes, 2 ** (bits if low >= 0 else bits - 1)))
    return within(sizes.max())


def best(candidates: Iterable[Quantizer], values: np.ndarray) -> Any:
    """Returns the quantizer with the least squared error, of equal ones the first."""
    return min(candidates, key=lambda each: _error(each, values).mean())


def _error(quantizer: Quantizer, values: np.ndarray) -> np.ndarray:
    return np.square(quantizer.rounded(values)[0] - values)


def entropy_limit(sizes: np.ndarray, levels: int) -> float:
    """Returns the end of the range with the least relative entropy, as TensorRT.

    A histogram of 2,048 bins is cut after i of them, for every 16th i from 128 on, or
    from `levels` on. P is what is left, with all that was cut off added to its last
    bin. Q are the bins before the cut in `levels` groups, each group's sum in equal
    parts in those of its bins that are not empty. i minimises Σ P log(P / Q). For 2,048
    levels or more it is the largest value. The first bin, which has the zeros of ReLU,
    counts as the second.

    Args:
        sizes: Absolute values, (count,).
        levels: Number of values to which the quantizer rounds them.

    Reference: Migacz 2017, "8-bit inference with TensorRT", the pseudocode of entropy
    calibration; NVIDIA's pytorch_quantization/calib/histogram.py for the first bin and
    the first end.
    """
    counts, edges = np.histogram(sizes, BINS, (0, float(sizes.max()) or 1.0))
    counts[0] = counts[1]
    ends = np.arange(BINS, max(levels, FIRST) - 1, -EVERY)
    if not len(ends):
        return float(sizes.max())
    entropies = [_relative_entropy(counts, int(end), levels) for end in ends]
    return float(edges[ends[np.argmin(entropies)]])


def _relative_entropy(counts: np.ndarray, end: int, levels: int) -> float:
    kept = counts[:end].astype("float64")
    groups = np.arange(end) * levels // end
    full = kept > 0
    sums = np.bincount(groups, kept, levels)
    sizes = np.bincount(groups, full, levels)
    q = np.where(full, (sums / np.maximum(sizes, 1))[groups], 0)
    p = kept.copy()
    p[-1] += counts[end:].sum()
    if q[-1] == 0 < p[-1]:
        return np.inf
    p, q = p[p > 0] / p.sum(), q[p > 0] / q.sum()
    return float(np.sum(p * np.log(p / q)))


def of_kernel(kernel: np.ndarray, name: str, method: str, bits: int) -> Uniform:
    """Returns the quantizer of a kernel, symmetric for each of its outputs.

    Args:
        kernel: Outputs are its last axis; of a depthwise kernel its last two.
        name: "kernel" or "depthwise_kernel".
        method: "mse": the scales have the least squared error; else they cover the
            largest absolute value, as arXiv 2004.09602, section 4.1, and TensorRT.
        bits: Number of bits.
    """
    axes = (0, 1) if name == "depthwise_kernel" else tuple(range(kernel.ndim - 1))
    largest = np.abs(kernel).max(axes, keepdims=True)
    if method != "mse":
        return Uniform.symmetric(largest, bits)
    mean = functools.partial(np.mean, axis=axes, keepdims=True)
    errors = [
        mean(_error(Uniform.symmetric(largest * part, bits), kernel)) for part in PARTS
    ]
    return Uniform.symmetric(largest * PARTS[np.argmin(errors, axis=0)], bits)


def of_softmax(values: np.ndarray, bits: int) -> TwinUniform:
    """Returns the `TwinUniform` of a softmax with the least squared error."""
    return best((TwinUniform.of_softmax(m, bits) for m in SOFTMAX_SHIFTS), values)


def of_gelu(values: np.ndarray, bits: int) -> TwinUniform:
    """Returns the `TwinUniform` of a GELU's output with the least squared error."""
    low = min(values.min(), 0)
    return best((TwinUniform.of_gelu(low, m, bits) for m in SHIFTS), values)


def with_factors(rows: np.ndarray, bits: int) -> Uniform:
    """Returns the quantizer of inputs of a LayerNorm, with a factor for each channel.

    Channel c has the scale 2^(α_c − 3) s, where s and the common zero are those of all
    values, and α_c in 0…3 has the least squared error.

    Args:
        rows: A sample of tokens, (count, channels).
        bits: Number of bits.

    Reference: Lin et al. 2021 (FQ-ViT), arXiv 2111.13824, equations 7 to 9, the
    power-of-two factor; models/ptq/observer/ptf.py in megvii-research/FQ-ViT.
    """
    whole = Uniform.of_range(rows.min(), rows.max(), bits)
    scales = [whole.scale * np.float32(2.0**-i) for i in range(FACTORS, -1, -1)]

    def finer(scale: np.ndarray) -> Uniform:
        return Uniform(scale, whole.zero, 0, whole.highest)

    errors = [_error(finer(scale), rows).mean(0) for scale in scales]
    return finer(np.stack(scales)[np.argmin(errors, axis=0)])
