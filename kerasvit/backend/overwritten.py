"""Variables whose gradient is their next value: scales and histories of float8 layers.

Keras marks them with `overwrite_with_gradient`. Their gradients are not derivatives, so
that they are excluded from all sums of gradients and passed to the optimizer unchanged.
"""

import keras
from keras import ops

from kerasvit.types import Gradients, Tensor


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
