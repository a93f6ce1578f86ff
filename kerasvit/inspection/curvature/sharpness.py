"""The rise of a model's loss within a ball or a box around its weights."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer, number

from .mean_loss import Loss, LossAt, batches, chosen_variables, length, norm

SMALLEST_STEP = 2.0**-6  # of the way to a corner of the box


def sharpness(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    rho: float = 0.05,
    m: int | None = None,
    batch_size: int = 32,
    variables: str | None = None,
) -> float:
    """Returns the rise of the loss over SAM's step: L(w + ρ g / ‖g‖₂) − L(w).

    g is the gradient of L over all samples. m-sharpness is the mean of the same rise
    over groups of m samples, each with the loss and the gradient of its own.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`.
        x: Inputs (N, ...), or an iterable of batches (x, y).
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function. None: the loss that the model is
            compiled with.
        rho: ρ, length of the step in units of the weights, > 0.
        m: Number of samples in a group. The groups follow the order of the samples; of
            each batch, or of the arrays, the rest that fills no group is left out.
            None: one group of all samples.
        batch_size: Number of samples per pass, without `m`; it does not change the
            result.
        variables: Regular expression that selects trainable variables by their path;
            only these take the step.

    Returns:
        The rise, in units of the loss; 0 where the gradient is 0.

    Raises:
        ValueError: As for `Hessian`; no batch has m samples; the loss after the step is
            not finite.

    Reference: Foret et al. 2021, arXiv 2010.01412, equation 2 and section 4.1.
    """
    number("rho", rho, positive=True)
    at = LossAt(model, chosen_variables(model, variables), loss)
    if m is None:
        return _rise(at, batches(x, y, batch_size), rho)
    integer("m", m, 1)
    rises = [
        _rise(at, partial(list, [group]), rho)
        for batch in batches(x, y, m)()
        for group in _groups(batch, m)
    ]
    if not rises:
        raise ArgumentError(
            f"`m` must be at most the number of samples in a batch. Received: m={m}, "
            "and no batch of so many samples.",
            "m",
        )
    return sum(rises) / len(rises)


def box_sharpness(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    epsilon: float = 1e-3,
    steps: int = 10,
    batch_size: int = 32,
    variables: str | None = None,
) -> float:
    """Returns the largest rise of the loss in a box around the weights, in per cent.

    It is 100 · (max L(w + z) − L(w)) / (1 + L(w)), over |z_i| ≤ ε (|w_i| + 1). The
    maximum is sought by moving towards the corner of the box that the gradient's signs
    point to: the whole way, or half of it, and so on, until the loss rises. It is a
    lower bound, as is that of the 10 iterations of L-BFGS-B in the paper.

    Args:
        epsilon: ε, > 0; the paper has 1e-3 and 5e-4.
        steps: Largest number of moves, ≥ 1. Each costs a gradient and one or more
            forward passes over the samples.
        model, x, y, loss, batch_size, variables: As for `sharpness`.

    Returns:
        The rise in per cent, ≥ 0.

    Raises:
        ValueError: As for `sharpness`; the loss is −1 or less.

    Reference: Keskar et al. 2017, arXiv 1609.04836, metric 2.1, equation 4, in the full
    space.
    """
    number("epsilon", epsilon, positive=True)
    integer("steps", steps, 1)
    data = batches(x, y, batch_size)
    at = LossAt(model, chosen_variables(model, variables), loss)
    weights = at.values()
    sides = [epsilon * (ops.abs(weight) + 1) for weight in weights]
    shifts = [ops.zeros_like(side) for side in sides]
    before = value = at.value(weights, data())
    for _ in range(steps):
        _, gradients = at.gradients([*map(ops.add, weights, shifts)], data())
        corner = [
            ops.where(gradient == 0, shift, ops.sign(gradient) * side)
            for gradient, shift, side in zip(gradients, shifts, sides, strict=True)
        ]
        step, higher = 1.0, value
        while step >= SMALLEST_STEP and not higher > value:
            moved = [s + step * (c - s) for s, c in zip(shifts, corner, strict=True)]
            higher = at.value([*map(ops.add, weights, moved)], data())
            step /= 2
        if not higher > value:
            break
        shifts, value = moved, higher
    if not -1 < before <= value < np.inf:
        raise ValueError(
            "The loss must be finite and above -1, for its relative rise. Received: "
            f"{before}, and {value} in the box."
        )
    return 100 * (value - before) / (1 + before)


def _rise(at: LossAt, data: Callable[[], Iterable], rho: float) -> float:
    """Returns the rise of the mean loss over a step of length ρ along its gradient."""
    weights = at.values()
    before, gradients = at.gradients(weights, data())
    size = norm(gradients)
    if size == 0:
        return 0.0
    moved = [w + g * (rho / size) for w, g in zip(weights, gradients, strict=True)]
    after = at.value(moved, data())
    if not np.isfinite(after):
        raise ValueError(
            "The loss after the step must be finite. Received: "
            f"{after}, at rho={rho}. Take a smaller `rho`."
        )
    return after - before


def _groups(batch: tuple[Any, Any], m: int) -> Iterator[tuple[Any, Any]]:
    """Cuts a batch into groups of m samples, without the rest."""
    for start in range(0, length(batch[0]) - m + 1, m):
        yield keras.tree.map_structure(lambda a, i=start: a[i : i + m], batch)
