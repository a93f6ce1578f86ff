"""The result of a training pass, and the sum of results over micro-batches."""

from typing import NamedTuple

import keras
from keras import ops

from .overwritten import larger


class Update(NamedTuple):
    """The result of a training pass on a batch, or on a part of one.

    Attributes:
        loss: Of the first pass, a scalar.
        gradients: One a trainable variable, or None; of the loss without its scale.
        memory: New values of the trainer's memory.
        state: One a non-trainable variable as the first pass left it, or None where it
            was not touched.
        metrics: The same, one a metric's variable.
        overwritten: One a trainable variable: its next value by the first pass where
            it has no derivative (`overwritten.py`), else None.
    """

    loss: object
    gradients: list
    memory: list
    state: list
    metrics: list
    overwritten: list


def add_part(total, part, share, metrics):
    """Adds the update of another part of the batch.

    Losses, gradients, memory and moving statistics are averaged, metrics added up;
    counters and seeds move on as in each of the parts.

    Args:
        total: `Update` by the parts before, or None.
        part: `Update`.
        share: Of the batch, from 0 to 1.
        metrics: Values before the step, one a metric's variable.
    """

    def mean(total, value):
        if value is None:
            return total
        if not is_float(value):
            return value
        weight = ops.cast(share, value.dtype)
        # A part without samples has no numbers, and no share.
        value = ops.where(weight > 0, weight * value, ops.zeros_like(value))
        return value if total is None else total + value

    def summed(total, value, start):
        if value is None or total is None:
            return total if value is None else value
        return total + ops.where(share > 0, value - start, ops.zeros_like(value))

    if total is None:
        total = Update(None, *([None] * len(values) for values in part[1:]))
    return Update(
        mean(total.loss, part.loss),
        *(
            [mean(*pair) for pair in zip(*lists, strict=True)]
            for lists in zip(total[1:4], part[1:4], strict=True)
        ),
        [
            summed(*values)
            for values in zip(total.metrics, part.metrics, metrics, strict=True)
        ],
        [
            larger(*values, share)
            for values in zip(total.overwritten, part.overwritten, strict=True)
        ],
    )


def is_float(value):
    """Whether a tensor has a floating point dtype."""
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype))
