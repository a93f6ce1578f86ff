"""Parameters and multiply-adds of a variant, counted on the model itself.

KERAS_BACKEND=jax python -m tests.models.counting ViTB16
"""

import math
import sys

import keras
from keras.src.backend.common import global_state

import kerasvit
from recipes.scoring.multiply_adds import of as multiply_adds


def outlined(name, **changes):
    """The variant with shapes instead of weights, which take no memory."""
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(kerasvit, name)(**changes)
    # Keras lists these variables and would initialise them in the next scope.
    global_state.set_global_attribute("uninitialized_variables", [])
    return model


def parameters(model):
    """Number of trainable parameters."""
    return sum(math.prod(w.shape) for w in model.trainable_weights)


def count(name, measure=parameters, **changes):
    """Result of `measure` for the variant."""
    return measure(outlined(name, **changes))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        numbers = count(name), count(name, multiply_adds) / 1e9
        print("{}: {:_} parameters, {:.2f} G multiply-adds".format(name, *numbers))
