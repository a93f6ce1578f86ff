import math

import numpy as np
import pytest

from kerasvit.layers import MLP, SwiGLU
from tests.contract import check_layer, to_numpy


@pytest.mark.slow
def test_contract():
    parameters = 4 * 8 + 8 + 8 * 4 + 4
    check_layer(
        MLP(8), input_shape=(2, 5, 4), output_shape=(2, 5, 4), parameters=parameters
    )


def exact(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick(x):
    return x / (1 + np.exp(-1.702 * x))


@pytest.mark.parametrize(
    "activation, gelu", [("gelu", exact), ("gelu_tanh", tanh), ("quick_gelu", quick)]
)
def test_is_two_dense_layers_with_gelu_between(activation, gelu):
    layer = MLP(8, activation=activation)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    layer.build(x.shape)
    layer.set_weights(
        [np.random.default_rng(1).normal(size=w.shape) for w in layer.weights]
    )
    k0, b0, k1, b1 = (w.astype("float64") for w in layer.get_weights())
    expected = gelu(x.astype("float64") @ k0 + b0) @ k1 + b1
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_contract_of_swiglu():
    check_layer(
        SwiGLU(8),
        input_shape=(2, 5, 4),
        output_shape=(2, 5, 4),
        parameters=2 * (4 * 8 + 8) + 8 * 4 + 4,
    )


def test_swiglu_multiplies_the_hidden_layer_by_its_gate():
    layer = SwiGLU(8)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    layer.build(x.shape)
    layer.set_weights(
        [np.random.default_rng(1).normal(size=w.shape) for w in layer.weights]
    )
    weights = {w.path.partition("/")[2]: to_numpy(w) for w in layer.weights}

    def dense(name, x):
        return x @ weights[f"{name}/kernel"].astype("float64") + weights[f"{name}/bias"]

    gate = dense("gate", x)
    hidden = gate / (1 + np.exp(-gate)) * dense("dense_0", x)
    np.testing.assert_allclose(
        to_numpy(layer(x)), dense("dense_1", hidden), rtol=1e-5, atol=1e-5
    )


def test_dropout_is_for_training_only():
    layer = MLP(8, dropout=0.5)
    x = np.ones((2, 5, 4), "float32")
    still = to_numpy(layer(x, training=False))
    np.testing.assert_array_equal(still, to_numpy(layer(x)))
    assert np.abs(to_numpy(layer(x, training=True)) - still).max() > 0


def test_an_unknown_activation_lists_the_known_ones():
    with pytest.raises(ValueError, match="gelu_tanh.*relu"):
        MLP(8, activation="relu")
