"""Masks of a model's outputs, for the loss and the metrics.

Keras stores a mask as an attribute of a tensor. A new tensor does not have it: after
slicing, concatenation, or detaching from a gradient's graph.
"""

from typing import Any

import keras

from kerasvit.types import Tensor

from .keras_private import get_keras_mask, set_keras_mask


def masks_of(outputs: Any) -> list[Tensor | None]:
    """Returns the masks of tensors as a list, with None for a tensor without a mask."""
    return [get_keras_mask(value) for value in keras.tree.flatten(outputs)]


def masked(outputs: Any, masks: list[Tensor | None]) -> Any:
    """Attaches the masks that `masks_of` returned to tensors, and returns these."""
    for value, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
        if mask is not None:
            set_keras_mask(value, mask)
    return outputs


def joined(outputs: list[tuple[Any, list[Tensor | None]]]) -> Any:
    """Concatenates the outputs of micro-batches and their masks.

    Args:
        outputs: Pairs (outputs, masks), one per micro-batch.
    """

    def join(*values: Tensor | None) -> Tensor | None:
        return None if values[0] is None else keras.ops.concatenate(values)

    return masked(*keras.tree.map_structure(join, *outputs))
