"""Activations whose gradients store their arguments alone."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasvit.layers.mlp import ACTIVATIONS
from kerasvit.ops import gated
from tests.once import elsewhere

if keras.backend.backend() != "jax":
    elsewhere("JAX derives activations by its own")
import jax  # noqa: E402

FUNCTIONS = {**{name: (f, 1) for name, f in ACTIVATIONS.items()}, "gated": (gated, 2)}


def arguments(count, dtype):
    values = np.random.default_rng(0).normal(size=(count, 7, 5))
    return [ops.cast(each, dtype) for each in values]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_store_the_arguments_alone(name, dtype):
    function, count = FUNCTIONS[name]
    _, gradient = jax.vjp(function, *arguments(count, dtype))
    stored = [each for each in jax.tree.leaves(gradient) if np.ndim(each)]
    assert [(x.shape, str(x.dtype)) for x in stored] == [((7, 5), dtype)] * count


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_the_function(name):
    function, count = FUNCTIONS[name]
    plain, x = function.__wrapped__, arguments(count, "float32")

    def hessian_vector(f):
        first = jax.grad(lambda *x: f(*x).sum(), range(count))
        return jax.jit(lambda x: jax.jvp(first, x, x))(tuple(x))

    both = hessian_vector(function), hessian_vector(plain)
    for found, expected in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
