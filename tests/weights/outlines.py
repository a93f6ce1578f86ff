"""Models without values: of a file, names and shapes are checked alone."""

from contextlib import contextmanager
from unittest import mock

import keras
import numpy as np
from keras.src.backend.common import global_state

from kerasvit.checkpoints import Checkpoint
from kerasvit.loading import load


class Outline:
    """A model without values; counts what is assigned to each of its variables."""

    def __init__(self, model):
        self.layers, self.record = model.layers, model.record
        self.weights = [_Variable(variable) for variable in model.weights]


class _Variable:
    def __init__(self, variable):
        self.path, self.shape = variable.path, tuple(variable.shape)
        self.dtype = "float32"
        self.assigned, self.value = 0, np.ones(1, "float32")  # no zeroed head

    def assign(self, array):
        assert array.shape == self.shape
        self.assigned += 1


def _outlined(build, max_weights, max_variables):
    """`built_with_zeros`, without the zeros."""
    with keras.StatelessScope(initialize_variables=False):
        model = build()
    # Keras lists these variables and would initialise them in the next scope.
    global_state.set_global_attribute("uninitialized_variables", [])
    assert sum(np.prod(w.shape) for w in model.weights) <= max_weights
    assert len(model.weights) <= max_variables
    return Outline(model)


@contextmanager
def outlines():
    """Loads `Outline`s in this context, and zeros from each file."""
    zeros = np.zeros((), "float32")

    def read(checkpoint, name):
        return np.broadcast_to(zeros, checkpoint.shapes[name])

    with (
        mock.patch.object(load, "built_with_zeros", _outlined),
        mock.patch.object(Checkpoint, "__getitem__", read),
    ):
        yield
