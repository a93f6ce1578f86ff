"""Which time steps of a model's outputs count, for its loss and its metrics.

Keras keeps a mask as an attribute of a tensor. It is lost wherever a new tensor is
made: by slicing, by leaving a gradient's graph.
"""

import keras
from keras.src import backend


def masks_of(outputs):
    """The masks of all tensors, a list; None for a tensor without one."""
    return [backend.get_keras_mask(value) for value in keras.tree.flatten(outputs)]


def masked(outputs, masks):
    """The same tensors, with the masks that `masks_of` returned for others."""
    for value, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
        if mask is not None:
            backend.set_keras_mask(value, mask)
    return outputs


def joined(parts):
    """The outputs of a batch that was taken in parts, from pairs of outputs and masks.

    A mask is that of the parts, one after the other, as the outputs are.
    """

    def join(*values):
        return None if values[0] is None else keras.ops.concatenate(values)

    return masked(*keras.tree.map_structure(join, *parts))
