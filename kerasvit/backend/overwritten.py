"""Variables whose gradient is their next value: scales and histories of float8 layers.

Keras marks them with `overwrite_with_gradient`. Their gradients are no derivatives, so
they are kept apart from all sums of gradients, and the optimizer gets them unchanged.
"""

from keras import ops


def take_out(gradients, variables):
    """Splits a list into gradients and next values.

    Args:
        gradients: Tensors or None.
        variables: As many.

    Returns:
        Two lists as long as `gradients`: one has None for the marked variables, the
        other for all others.
    """
    marked = [v.overwrite_with_gradient for v in variables]
    pairs = list(zip(gradients, marked, strict=True))
    return (
        [None if mark else gradient for gradient, mark in pairs],
        [gradient if mark else None for gradient, mark in pairs],
    )


def put_back(gradients, overwritten):
    """Joins the lists that `take_out` returned."""
    pairs = zip(gradients, overwritten, strict=True)
    return [gradient if value is None else value for gradient, value in pairs]


def larger(total, value, share):
    """Combines the next values of two micro-batches, as Keras does in accumulation.

    Args:
        total: By the parts before, or None.
        value: By one part, or None; a scale or the largest magnitudes seen, ≥ 0.
        share: Of the part; one that is 0 does not count.
    """
    if value is None:
        return total
    value = ops.where(share > 0, value, ops.zeros_like(value))
    return value if total is None else ops.maximum(total, value)
