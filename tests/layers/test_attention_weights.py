"""The weights that each attention layer returns are those of its output."""

import numpy as np
import pytest

from kerasvit.layers import (
    Attention,
    LocalAttention,
    NeighborhoodAttention,
    QuadraticAttention,
    RelativeAttention,
    WindowAttention,
)
from tests.contract import to_numpy
from tests.once import mainly_on_last, on_last_backend

RELATIVE = {"head_dim": 3, "filters": 5, "key_dim": 2}
PADDED = {**RELATIVE, "padding": 1}
MAP, TOKENS = (2, 4, 6, 8), (2, 7, 8)
CASES = {
    "tokens": (Attention(2), TOKENS),
    "shifted windows": (WindowAttention(2, window_size=2, shifted=True), MAP),
    "local": (LocalAttention(6, num_heads=3, window_size=2, head_width=4), MAP),
    "neighbours": (NeighborhoodAttention(2, grid=(2, 3), window=3, prefix=1), TOKENS),
    "windows": (WindowAttention(2, window_size=2), MAP),
    "shifted along one side": (
        WindowAttention(2, window_size=3, shifted=True),
        (2, 2, 6, 8),
    ),
    "relative": (RelativeAttention(2, **RELATIVE), MAP),
    "relative with a padding": (RelativeAttention(2, **PADDED), MAP),
    "quadratic": (QuadraticAttention(2, **PADDED), MAP),
    "positions alone": (RelativeAttention(2, **{**PADDED, "key_dim": 0}), MAP),
}


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def filled(layer, shape):
    layer = type(layer).from_config(layer.get_config())
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    return layer


def dense(layer, x):
    kernel, *bias = layer.get_weights()
    return x @ kernel + sum(bias)


def output_of(layer, weights, x):
    """The output for attention weights, with windows if there are any."""
    batch, *sides, channels = x.shape
    values = dense(layer.value, x.reshape(batch, -1, channels))
    values = values.reshape(*values.shape[:2], layer.num_heads, -1)
    if weights.ndim == 4:
        mixed = np.einsum("bhnm,bmhd->bnhd", weights, values)
    else:
        cells = layer.window_cells(*sides)
        mixed = np.zeros_like(values)
        mixed[:, cells] = np.einsum("bwhnm,bwmhd->bwnhd", weights, values[:, cells])
    mixed = mixed.reshape(*mixed.shape[:2], -1)
    return dense(layer.output_dense, mixed).reshape(batch, *sides, -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", mainly_on_last(CASES, everywhere=3))
def test_weights_times_values_are_the_output(name):
    layer, shape = CASES[name]
    layer, x = filled(layer, shape), random(*shape)
    weights = to_numpy(layer.attention_weights(x))
    np.testing.assert_allclose(
        output_of(layer, weights, x), to_numpy(layer(x)), atol=1e-4
    )
    if not getattr(layer, "padding", 0):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@on_last_backend
def test_weights_of_a_context():
    layer, x, context = (
        filled(Attention(2), (2, 3, 8)),
        random(2, 3, 8),
        random(2, 5, 8),
    )
    weights = to_numpy(layer.attention_weights(x, context))
    values = dense(layer.value, context).reshape(2, 5, 2, 4)
    mixed = np.einsum("bhnm,bmhd->bnhd", weights, values).reshape(2, 3, 8)
    expected = to_numpy(layer(x, context))
    np.testing.assert_allclose(dense(layer.output_dense, mixed), expected, atol=1e-4)


@on_last_backend
def test_windows_contain_each_cell_once():
    for name in ("windows", "shifted windows", "shifted along one side", "local"):
        layer, (_, height, width, _) = CASES[name]
        layer = filled(layer, CASES[name][1])
        cells = layer.window_cells(height, width)
        assert sorted(cells.ravel()) == list(range(height * width))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mainly_on_last(["tokens", "shifted windows", "local", "relative"])
)
def test_weights_under_mixed_precision_are_float32(name):
    layer, shape = CASES[name]
    exact, x = filled(layer, shape), random(*shape)
    config = {**layer.get_config(), "dtype": "mixed_bfloat16"}
    half = type(layer).from_config(config)
    half.build(shape)
    half.set_weights(exact.get_weights())
    weights = half.attention_weights(x)
    assert "float32" in str(weights.dtype)
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1, atol=1e-5)
    expected = to_numpy(exact.attention_weights(x))
    np.testing.assert_allclose(to_numpy(weights), expected, atol=0.03)
