"""Masks of a model's outputs, for the loss and the metrics.

Keras keeps a mask as an attribute of a tensor. It is lost wherever a new tensor is
made: by slicing, by leaving a gradient's graph.
"""

import keras
from keras.src import backend


def masks_of(outputs):
    """Returns the masks of tensors as a list, with None for a tensor without a mask."""
    return [backend.get_keras_mask(value) for value in keras.tree.flatten(outputs)]


def masked(outputs, masks):
    """Gives tensors the masks that `masks_of` returned."""
    for value, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
        if mask is not None:
            backend.set_keras_mask(value, mask)
    return outputs


def joined(parts):
    """Concatenates the outputs of micro-batches, given as pairs (outputs, masks).

    A mask is that of the parts, one after the other, as the outputs are.
    """

    def join(*values):
        return None if values[0] is None else keras.ops.concatenate(values)

    return masked(*keras.tree.map_structure(join, *parts))
