"""The result of a training pass, and the sum of results over micro-batches."""

from typing import NamedTuple

import keras
from keras import ops

from kerasvit.types import Gradients, Tensor


class Update(NamedTuple):
    """The result of a training pass on a batch or a micro-batch.

    Attributes:
        loss: Loss of the first pass, a scalar.
        gradients: Gradients of the unscaled loss, one per trainable variable, or None.
        slots: New values of the trainer's slot variables, or None for unchanged ones.
        state: Values of the non-trainable variables after the first pass, or None for
            variables that it did not assign.
        metrics: Values of the metrics' variables, likewise.
        overwritten: One per trainable variable: the next value by the first pass, for
            variables without a derivative (see `take_out`), else None.
    """

    loss: Tensor
    gradients: Gradients
    slots: list[Tensor | None]
    state: list[Tensor | None]
    metrics: list[Tensor | None]
    overwritten: Gradients


def add_micro_batch(
    total: Update | None,
    update: Update,
    share: Tensor | float,
    metrics: list[Tensor],
) -> Update:
    """Adds the update of another micro-batch.

    Losses, gradients, slots and moving statistics are averaged; changes of metrics are
    summed; counters and seeds advance as in one micro-batch.

    Args:
        total: `Update` by the previous micro-batches, or None.
        update: `Update` by the micro-batch.
        share: Its share of the samples of the batch, in [0, 1].
        metrics: Values of the metrics' variables before the step.
    """

    def mean(total: Tensor | None, value: Tensor | None) -> Tensor | None:
        if value is None:
            return total
        if not is_float(value):
            return value
        weight = ops.cast(share, value.dtype)
        # The values of an empty micro-batch are not used: they may be NaN.
        value = ops.where(weight > 0, weight * value, ops.zeros_like(value))
        return value if total is None else total + value

    def summed(
        total: Tensor | None, value: Tensor | None, start: Tensor
    ) -> Tensor | None:
        if value is None or total is None:
            return total if value is None else value
        return total + ops.where(share > 0, value - start, ops.zeros_like(value))

    def means(totals: Gradients, values: Gradients) -> Gradients:
        return [mean(*pair) for pair in zip(totals, values, strict=True)]

    if total is None:
        total = Update(None, *([None] * len(values) for values in update[1:]))
    pairs = zip(total.metrics, update.metrics, metrics, strict=True)
    next_values = zip(total.overwritten, update.overwritten, strict=True)
    return Update(
        loss=mean(total.loss, update.loss),
        gradients=means(total.gradients, update.gradients),
        slots=means(total.slots, update.slots),
        state=means(total.state, update.state),
        metrics=[summed(*values) for values in pairs],
        overwritten=[larger(*values, share) for values in next_values],
    )


def only_assigned(before: list[Tensor], after: list[Tensor]) -> list[Tensor | None]:
    """Returns the values after a pass, and None for those that it did not assign."""
    return [None if new is old else new for old, new in zip(before, after, strict=True)]


def assigned_or(before: list[Tensor], after: list[Tensor | None]) -> list[Tensor]:
    """Returns the values after a pass, and those before for None."""
    return [old if new is None else new for old, new in zip(before, after, strict=True)]


def is_float(value: Tensor | None) -> bool:
    """Returns whether a value is a tensor of a floating point dtype."""
    if value is None:
        return False
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype))


# Layers of float8 have scales and histories whose gradient is their next value, which
# Keras marks with `overwrite_with_gradient`. They are excluded from all sums of
# gradients, and passed to the optimizer unchanged.


def take_out(
    gradients: Gradients, variables: list[keras.Variable]
) -> tuple[Gradients, Gradients]:
    """Splits a list into gradients and next values.

    Args:
        gradients: Tensors or None, one per variable.
        variables: Trainable variables.

    Returns:
        Two lists as long as `gradients`: the gradients, with None for the marked
        variables, and the next values, with None for all other variables.
    """
    marked = [v.overwrite_with_gradient for v in variables]
    pairs = list(zip(gradients, marked, strict=True))
    return (
        [None if mark else gradient for gradient, mark in pairs],
        [gradient if mark else None for gradient, mark in pairs],
    )


def put_back(gradients: Gradients, overwritten: Gradients) -> Gradients:
    """Joins the lists that `take_out` returned."""
    pairs = zip(gradients, overwritten, strict=True)
    return [gradient if value is None else value for gradient, value in pairs]


def larger(
    total: Tensor | None, value: Tensor | None, share: Tensor | float
) -> Tensor | None:
    """Combines the next values of two micro-batches, as Keras does in accumulation.

    Args:
        total: Next value by the previous micro-batches, or None.
        value: Next value by one micro-batch, or None: a scale or magnitudes, ≥ 0.
        share: Its share of the samples; for 0 its value is ignored.
    """
    if value is None:
        return total
    value = ops.where(share > 0, value, ops.zeros_like(value))
    return value if total is None else ops.maximum(total, value)
