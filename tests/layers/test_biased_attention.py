import numpy as np
import pytest

from kerasvit.layers import (
    MLP,
    BiasedAttention,
    EncoderBlock,
    LayerScaleBlock,
    RelativePositionBias,
)
from tests.contract import check_layer, to_numpy

from .test_relative_position_bias import longhand as biases_of

WIDTH, HEADS, GRID = 8, 2, (2, 3)
TOKENS = 1 + GRID[0] * GRID[1]
ROWS = 3 * 5 + 3
PROJECTIONS = 4 * WIDTH * WIDTH + 3 * WIDTH


def attention(**options):
    position_bias = RelativePositionBias(HEADS, GRID, name="position_bias")
    return BiasedAttention(HEADS, position_bias, name="attention", **options)


def filled(layer):
    layer.build((2, TOKENS, WIDTH))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer, rng.normal(size=(2, TOKENS, WIDTH)).astype("float32")


def longhand(layer, x, biases):
    """Returns (output, weights), head by head in float64."""

    def dense(part, x):
        kernel, *bias = (w.astype("float64") for w in part.get_weights())
        return x @ kernel + (bias[0] if bias else 0)

    query, key, value = (dense(p, x) for p in (layer.query, layer.key, layer.value))
    size, outputs, weights = WIDTH // HEADS, [], []
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ key[..., part].swapaxes(1, 2) / size**0.5
        scores = np.exp(scores + biases[head])
        weights.append(scores / scores.sum(axis=-1, keepdims=True))
        outputs.append(weights[-1] @ value[..., part])
    output = dense(layer.output_dense, np.concatenate(outputs, axis=-1))
    return output, np.stack(weights, axis=1)


@pytest.mark.slow
def test_contract():
    check_layer(
        attention(),
        input_shape=(2, TOKENS, WIDTH),
        output_shape=(2, TOKENS, WIDTH),
        parameters=PROJECTIONS + ROWS * HEADS,
    )


def test_without_biases_of_query_and_value():
    layer, _ = filled(attention(use_bias=False))
    assert sum(len(w.shape) == 1 for w in layer.weights) == 1


def test_the_table_is_added_to_the_scores():
    layer, x = filled(attention())
    table = to_numpy(layer.position_bias.biases)
    output, weights = longhand(layer, x, biases_of(table, GRID))
    np.testing.assert_allclose(to_numpy(layer(x)), output, atol=1e-4)
    np.testing.assert_allclose(to_numpy(layer.attention_weights(x)), weights, atol=1e-5)


def test_given_biases_are_added_to_the_scores():
    layer, x = filled(BiasedAttention(HEADS))
    biases = np.random.default_rng(2).normal(size=(1, HEADS, TOKENS, TOKENS))
    output, weights = longhand(layer, x, biases[0])
    biases = biases.astype("float32")
    np.testing.assert_allclose(to_numpy(layer(x, biases)), output, atol=1e-4)
    found = layer.attention_weights(x, biases)
    np.testing.assert_allclose(to_numpy(found), weights, atol=1e-5)
    output, _ = longhand(layer, x, 0 * biases[0])
    np.testing.assert_allclose(to_numpy(layer(x)), output, atol=1e-4)


@pytest.mark.parametrize("block", [EncoderBlock, LayerScaleBlock])
def test_blocks_resample_the_table(block):
    layer = block(attention(), MLP(12, name="mlp"))
    layer.build((2, TOKENS, WIDTH))
    assert layer.grid == GRID
    ((path, resample),) = layer.resamplers().items()
    assert path.endswith("/attention/position_bias/table")
    assert resample(np.ones((5 * 7 + 3, HEADS)), source_grid=(3, 4)).shape == (ROWS, 2)


def test_blocks_without_a_table():
    layer = EncoderBlock(BiasedAttention(HEADS), MLP(12, name="mlp"))
    layer.build((2, TOKENS, WIDTH))
    assert not hasattr(layer, "grid")
    assert layer.resamplers() == {}
