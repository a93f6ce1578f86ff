"""Chooses ranges by the results of products, and bits by the sensitivity of layers.

Liu et al. 2021, "Post-training quantization for vision transformer", arXiv 2106.14156:

- Scales maximise Pearson's correlation of a product with that of rounded operands, one
  operand after the other (similarity-aware quantisation). Here each output of a kernel
  has a scale of its own.
- For queries and keys, a loss of the order of scores is subtracted (ranking-aware):
  mean of max(θ − (Ŝ_i − Ŝ_j) · sign(S_i − S_j), 0) over pairs of keys. Here the pairs
  are those at distances 1, 2, 4 and so on.
- Bits are given so that the sum of the layers' costs is small and all kernels together
  have the size that they have with the same bits each (mixed precision); here by the
  largest decrease per weight, one bit after the other. The cost of a layer at some bits
  is here the squared error of its result, divided by the squares of the result. The
  paper multiplies it by the result's nuclear norm instead, by which layers with small
  results get too few bits (recipes/MEASURED.md).

The search sees a part of the first batch of images.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Tensor

from . import ranges
from .quantizers import Uniform

# Parts of the range of the smallest and largest value: 0.5 to 1.2 as the paper, those
# near 1 first.
PARTS = np.array(sorted(np.arange(10, 25) / 20, key=lambda part: abs(part - 1)))
ROUNDS = 2
MARGIN, WEIGHT = 0.2, 0.1  # θ and the factor of the loss of the order
ROWS, IMAGES = 512, 8  # that the search sees
MOST = 2  # bits more or less than the mean
KERNELS = ("kernel", "depthwise_kernel")
Values = dict[Any, dict[str, np.ndarray]]


def searched(
    model: keras.Model, images: Any, values: Values, bits: tuple[int, int]
) -> dict[Any, dict[str, Uniform]]:
    """Returns {layer: {name of an operand: quantizer}}; see the module's docstring.

    Args:
        model: Model whose layers have no `rounding`. It is changed and changed back.
        images: A batch.
        values: {layer: {name of an operand: kernel or sample}}.
        bits: Number of bits of weights, the mean, and of activations.
    """
    most = min(MOST, *(b - 2 for b in bits), *(16 - b for b in bits))
    changes = range(-most, most + 1)
    measured = {
        layer: _Cost([_starts(own, bits, change) for change in changes])
        for layer, own in values.items()
        if any(name in KERNELS for name in own)
    }
    _run(model, images, measured)
    sizes = {x: _kernel(own).size for x, own in values.items() if x in measured}
    steps = allocated({x: cost.costs for x, cost in measured.items()}, sizes)
    searches = {
        layer: _Search(_starts(own, bits, changes[steps.get(layer, most)]))
        for layer, own in values.items()
    }
    _run(model, images, searches)
    return {layer: search.quantizers for layer, search in searches.items()}


def allocated(costs: dict[Any, list[float]], sizes: dict[Any, int]) -> dict[Any, int]:
    """Returns the step of each layer: which of its costs it has.

    Args:
        costs: {layer: cost after each step}, of an odd number of steps.
        sizes: {layer: what a step takes}. The steps of all layers together take at
            most what the middle one of each would.
    """
    last = max((len(each) for each in costs.values()), default=1) - 1
    steps, room = dict.fromkeys(costs, 0), sum(sizes.values()) * (last // 2)
    while True:
        gains = {
            layer: (costs[layer][step] - costs[layer][step + 1]) / sizes[layer]
            for layer, step in steps.items()
            if step < last and sizes[layer] <= room
        }
        if not gains:
            return steps
        best = max(gains, key=lambda layer: gains[layer])
        steps[best] += 1
        room -= sizes[best]


def similarity(exact: np.ndarray, found: np.ndarray, axes: Any = None) -> Any:
    """Returns Pearson's correlation along axes; 0 if one of both is constant."""
    exact, found = (x - x.mean(axes, keepdims=True) for x in (exact, found))
    norms = np.sqrt(np.square(exact).sum(axes) * np.square(found).sum(axes))
    return (exact * found).sum(axes) / np.where(norms > 0, norms, 1)


def order_loss(exact: np.ndarray, found: np.ndarray) -> float:
    """Returns the loss of the order of scores, (..., queries, keys)."""
    losses = []
    for i in range((exact.shape[-1] - 1).bit_length()):
        first, second = (x - np.roll(x, 2**i, -1) for x in (exact, found))
        losses.append(np.maximum(MARGIN - second * np.sign(first), 0).mean())
    return float(np.mean(losses)) if losses else 0.0


def _starts(
    values: dict[str, np.ndarray], bits: tuple[int, int], change: int
) -> dict[str, Uniform]:
    """Returns the quantizers of the smallest and largest values."""
    weights, activations = (each + change for each in bits)
    return {
        name: ranges.of_kernel(x, name, "min_max", weights)
        if name in KERNELS
        else ranges.of_activations(x, "min_max", activations)
        for name, x in values.items()
    }


def _kernel(values: dict[str, np.ndarray]) -> np.ndarray:
    return next(x for name, x in values.items() if name in KERNELS)


def _run(model: keras.Model, images: Any, roundings: Mapping[Any, Callable]) -> None:
    for layer, rounding in roundings.items():
        layer.rounding = rounding
    model(ops.convert_to_tensor(images), training=False)
    for layer in roundings:
        layer.rounding = None


def _few(operands: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: x if name in KERNELS else x[: ROWS if len(x.shape) == 2 else IMAGES]
        for name, x in operands.items()
    }


def _result(
    operation: Callable, operands: dict[str, Tensor], quantizers: dict[str, Uniform]
) -> np.ndarray:
    rounded = (quantizers[name](x) for name, x in operands.items())
    return ops.convert_to_numpy(operation(*rounded)).astype("float32")


class _Cost:
    """Measures what each of several roundings costs, and rounds nothing."""

    def __init__(self, candidates: list[dict[str, Uniform]]) -> None:
        self._candidates = candidates
        self.costs: list[float] = []

    def __call__(self, operation: Callable, operands: dict[str, Tensor]) -> Tensor:
        few = _few(operands)
        exact = ops.convert_to_numpy(operation(*few.values())).astype("float32")
        size = np.square(exact).sum() or 1
        self.costs = [
            float(np.square(_result(operation, few, each) - exact).sum() / size)
            for each in self._candidates
        ]
        return operation(*operands.values())


class _Search:
    """Searches scales around those of `starts`, and rounds nothing."""

    def __init__(self, starts: dict[str, Uniform]) -> None:
        self._starts = starts
        self.quantizers = dict(starts)

    def __call__(self, operation: Callable, operands: dict[str, Tensor]) -> Tensor:
        few = _few(operands)
        exact = ops.convert_to_numpy(operation(*few.values())).astype("float32")
        for _ in range(ROUNDS):
            for name in reversed(operands):  # kernels first
                self.quantizers[name] = self._best(name, operation, few, exact)
        return operation(*operands.values())

    def _best(
        self,
        name: str,
        operation: Callable,
        few: dict[str, Tensor],
        exact: np.ndarray,
    ) -> Uniform:
        start = self._starts[name]
        axes = tuple(range(exact.ndim - 1)) if name in KERNELS else None
        scores = []
        for part in PARTS:
            tried = replace(start, scale=start.scale * np.float32(part))
            found = _result(operation, few, {**self.quantizers, name: tried})
            score = similarity(exact, found, axes)
            if "query" in few:
                score = score - WEIGHT * order_loss(exact, found)
            scores.append(score)
        parts = PARTS[np.argmax(scores, axis=0)].astype("float32")
        return replace(start, scale=start.scale * parts.reshape(np.shape(start.scale)))
