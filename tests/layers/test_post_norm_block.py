import numpy as np
import pytest

from kerasvit.layers import MLP, Attention, EncoderBlock, PostNormBlock
from tests.contract import check_layer, to_numpy


def block(kind=PostNormBlock, **kwargs):
    return kind(Attention(2, name="attention"), MLP(16, name="mlp"), **kwargs)


def normalised(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return gamma * centred / np.sqrt(variance + epsilon) + beta


def test_contract():
    check_layer(
        block(),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=4 * 8 + 4 * (8 * 8 + 8) + 2 * 8 * 16 + 16 + 8,
    )


def test_sums_are_normalised():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    layer = block(epsilon=1e-3)
    layer.build(x.shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    norms = [
        [*map(to_numpy, (norm.gamma, norm.beta)), 1e-3]
        for norm in (layer.attention_norm, layer.mlp_norm)
    ]
    middle = normalised(x + to_numpy(layer.attention(x)), *norms[0])
    expected = normalised(middle + to_numpy(layer.mlp(middle)), *norms[1])
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-5)


def test_variables_are_those_of_the_encoder_block():
    post, pre = block(name="block"), block(EncoderBlock, name="block")
    for layer in (post, pre):
        layer.build((None, 5, 8))
    assert [w.path for w in post.weights] == [w.path for w in pre.weights]


@pytest.mark.slow
def test_dropped_branches_leave_the_normalised_input():
    layer = block(stochastic_depth=0.999)
    x = np.random.default_rng(0).normal(size=(4, 5, 8)).astype("float32")
    twice = normalised(normalised(x, 1, 0, 1e-6), 1, 0, 1e-6)
    np.testing.assert_allclose(to_numpy(layer(x, training=True)), twice, atol=1e-5)
