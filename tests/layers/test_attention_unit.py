import math

import keras
import numpy as np
import pytest

from kerasvit.layers import AttentionUnit, Conv, LocalAttention
from tests.contract import check_layer, to_numpy


def unit(rate=0.0):
    return AttentionUnit(
        keras.layers.BatchNormalization(name="conv_norm"),
        Conv(4, 1, name="conv"),
        keras.layers.BatchNormalization(name="attention_norm"),
        LocalAttention(8, num_heads=2, window_size=2, head_width=3, name="attention"),
        stochastic_depth=rate,
    )


@pytest.mark.slow
def test_contract():
    check_layer(
        unit(),
        input_shape=(2, 4, 4, 8),
        output_shape=(2, 4, 4, 8),
        parameters=4 * (8 + 4) + 8 * 4 + 3 * 4 * 6 + 6 * 8 + 8 + 9,
    )


def test_is_norm_gelu_convolution_norm_and_attention_beside_the_input():
    layer, rng = unit(), np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 4, 8)).astype("float32")
    layer.build(x.shape)
    layer.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in layer.weights])

    def norm(x, part):
        gamma, beta, mean, variance = map(to_numpy, part.weights)
        return (x - mean) / np.sqrt(variance + part.epsilon) * gamma + beta

    branch = norm(x, layer.conv_norm)
    branch = branch * (1 + np.vectorize(math.erf)(branch / np.sqrt(2))) / 2
    branch = norm(branch @ to_numpy(layer.conv.kernel)[0, 0], layer.attention_norm)
    expected = x + to_numpy(layer.attention(branch.astype("float32")))
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_stochastic_depth_drops_the_branch_of_a_sample():
    x = np.random.default_rng(0).normal(size=(32, 2, 2, 8)).astype("float32")
    found = to_numpy(unit(0.5)(x, training=True))
    dropped = (found == x).all(axis=(1, 2, 3))
    assert 0 < dropped.sum() < 32
