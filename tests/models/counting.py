"""Parameters and multiply-adds of a variant, counted on the model itself.

KERAS_BACKEND=jax python -m tests.models.counting ViTB16
"""

import math
import sys

import keras
from keras.src.backend.common import global_state

import kerasvit


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


def multiply_adds(model):
    """Multiply-adds of the matrix products and convolutions for one image, by JAX."""
    import jax

    state = [
        [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]

    def forward(state, images):
        return model.stateless_call(*state, images, training=False)[0]

    image = jax.ShapeDtypeStruct((1, *model.input_shape[1:]), "float32")
    return _products(jax.make_jaxpr(forward)(state, image).jaxpr)


def _products(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        shapes = [v.aval.shape for v in equation.invars]
        made = math.prod(equation.outvars[0].aval.shape)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += made * math.prod(shapes[0][axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            out = equation.params["dimension_numbers"].rhs_spec[0]
            total += made * math.prod(shapes[1]) // shapes[1][out]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += _products(inner)
    return total


if __name__ == "__main__":
    for name in sys.argv[1:]:
        numbers = count(name), count(name, multiply_adds) / 1e9
        print("{}: {:_} parameters, {:.2f} G multiply-adds".format(name, *numbers))
