import keras
import numpy as np
import pytest

from kerasvit.layers import (
    MLP,
    Attention,
    AttentionPooling,
    EncoderBlock,
    LayerScaleBlock,
    StochasticDepth,
)
from tests.contract import check_layer, to_numpy

NORMS, ATTENTION, MLPS = 4 * 8, 4 * (8 * 8 + 8), 2 * 8 * 16 + 16 + 8


def parts():
    return Attention(2, name="attention"), MLP(16, name="mlp")


@pytest.mark.slow
def test_encoder_block_contract():
    check_layer(
        EncoderBlock(*parts()),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=NORMS + ATTENTION + MLPS,
    )


def test_layer_scale_block_contract():
    check_layer(
        LayerScaleBlock(*parts(), init_value=0.1),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=NORMS + ATTENTION + MLPS + 16,
    )


@pytest.mark.slow
def test_attention_pooling_contract():
    check_layer(
        AttentionPooling(2, mlp_dim=16),
        input_shape=(2, 5, 8),
        output_shape=(2, 8),
        parameters=8 + ATTENTION + 16 + MLPS,
    )


def test_branches_are_normalised_then_added():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    block = EncoderBlock(*parts(), epsilon=1e-3)
    y = to_numpy(block(x))
    middle = x + to_numpy(block.attention(block.attention_norm(x)))
    np.testing.assert_allclose(
        y, middle + to_numpy(block.mlp(block.mlp_norm(middle))), atol=1e-5
    )
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(to_numpy(block.mlp_norm(x)), normal, atol=1e-5)


def test_layer_scale_of_zero_leaves_the_tokens():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    np.testing.assert_array_equal(
        to_numpy(LayerScaleBlock(*parts(), init_value=0.0)(x)), x
    )


def test_stochastic_depth_contract():
    check_layer(
        StochasticDepth(0.5), input_shape=(2, 5), output_shape=(2, 5), parameters=0
    )


def test_stochastic_depth_drops_whole_samples_and_keeps_the_mean():
    x = np.ones((4000, 3), "float32")
    y = to_numpy(StochasticDepth(0.25, seed=1)(x, training=True))
    assert set(np.unique(y.round(4))) == {0.0, np.float32(4 / 3).round(4)}
    assert (y == y[:, :1]).all()
    assert abs(y.mean() - 1) < 0.05


def test_stochastic_depth_is_for_training_only():
    x = np.ones((8, 3), "float32")
    np.testing.assert_array_equal(to_numpy(StochasticDepth(0.9)(x)), x)


def test_stochastic_depth_draws_in_each_call():
    layer = StochasticDepth(0.5, seed=1)
    x = np.ones((64, 1), "float32")
    first, second = (to_numpy(layer(x, training=True)) for _ in range(2))
    assert (first != second).any()


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_stochastic_depth_raises_for_invalid_rates(rate):
    with pytest.raises(ValueError, match="`rate`"):
        StochasticDepth(rate)


def test_block_in_a_functional_model_keeps_its_paths():
    tokens = keras.Input((5, 8))
    model = keras.Model(tokens, EncoderBlock(*parts(), name="encoder_block_3")(tokens))
    assert "encoder_block_3/attention/query/kernel" in {w.path for w in model.weights}
