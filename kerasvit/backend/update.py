"""The result of a training pass, and the sum of results over micro-batches."""

from typing import NamedTuple

import keras
from keras import ops

from kerasvit.typing import Gradients, Tensor

from .overwritten import larger


class Update(NamedTuple):
    """The result of a training pass on a batch or a part of a batch.

    Attributes:
        loss: Loss of the first pass, a scalar.
        gradients: Gradients of the unscaled loss, one per trainable variable, or None.
        memory: New values of the trainer's memory, or None for unchanged ones.
        state: Values of the non-trainable variables after the first pass, or None for
            variables that it did not assign.
        metrics: Values of the metrics' variables, likewise.
        overwritten: One per trainable variable: the next value by the first pass, for
            variables without a derivative (`overwritten.py`), else None.
    """

    loss: Tensor
    gradients: Gradients
    memory: list[Tensor | None]
    state: list[Tensor | None]
    metrics: list[Tensor | None]
    overwritten: Gradients


def add_part(
    total: Update | None,
    part: Update,
    share: Tensor | float,
    metrics: list[Tensor],
) -> Update:
    """Adds the update of another part of the batch.

    Losses, gradients, memory and moving statistics are averaged; changes of metrics are
    summed; counters and seeds advance as in one part.

    Args:
        total: `Update` by the previous parts, or None.
        part: `Update` by the part.
        share: Share of the batch that the part has, in [0, 1].
        metrics: Values of the metrics' variables before the step.
    """

    def mean(total: Tensor | None, value: Tensor | None) -> Tensor | None:
        if value is None:
            return total
        if not is_float(value):
            return value
        weight = ops.cast(share, value.dtype)
        # The values of an empty part are not used: they may be NaN.
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
        total = Update(None, *([None] * len(values) for values in part[1:]))
    pairs = zip(total.metrics, part.metrics, metrics, strict=True)
    next_values = zip(total.overwritten, part.overwritten, strict=True)
    return Update(
        loss=mean(total.loss, part.loss),
        gradients=means(total.gradients, part.gradients),
        memory=means(total.memory, part.memory),
        state=means(total.state, part.state),
        metrics=[summed(*values) for values in pairs],
        overwritten=[larger(*values, share) for values in next_values],
    )


def is_float(value: Tensor) -> bool:
    """Returns whether a tensor has a floating point dtype."""
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype))
