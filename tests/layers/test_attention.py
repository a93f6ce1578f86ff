import numpy as np
import pytest

from kerasvit.layers import Attention
from tests.contract import check_layer, to_numpy


def longhand(layer, x, context):
    q, k, v, o = (
        [w.astype("float64") for w in sub.get_weights()]
        for sub in (layer.query, layer.key, layer.value, layer.output_dense)
    )
    bias = lambda weights: weights[1] if len(weights) > 1 else 0  # noqa: E731
    size = x.shape[-1] // layer.num_heads
    result = np.zeros(x.shape)
    for b in range(len(x)):
        heads = []
        for h in range(layer.num_heads):
            part = slice(h * size, (h + 1) * size)
            query = (x[b] @ q[0] + bias(q))[:, part]
            key = (context[b] @ k[0] + bias(k))[:, part]
            value = (context[b] @ v[0] + bias(v))[:, part]
            score = np.exp(query @ key.T / np.sqrt(size))
            heads.append(score / score.sum(-1, keepdims=True) @ value)
        result[b] = np.concatenate(heads, -1) @ o[0] + o[1]
    return result


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer


def test_contract():
    check_layer(
        Attention(2),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=4 * (8 * 8 + 8),
    )


def test_contract_without_bias():
    check_layer(
        Attention(2, use_bias=False),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=4 * 8 * 8 + 8,
    )


@pytest.mark.parametrize("use_bias", [True, False])
def test_is_softmax_of_scaled_products(use_bias):
    x = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    layer = filled(Attention(3, use_bias=use_bias), x.shape)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x, x), atol=2e-4)


def test_attention_uses_the_context_instead_of_the_tokens():
    x, context = np.random.default_rng(0).normal(size=(2, 2, 7, 8)).astype("float32")
    x = x[:, :1]
    layer = filled(Attention(2), x.shape)
    found = to_numpy(layer(x, context))
    np.testing.assert_allclose(found, longhand(layer, x, context), atol=2e-4)


def test_variables_have_the_same_paths_and_shapes_on_every_backend():
    layer = filled(Attention(2, name="attention"), (None, 5, 8))
    assert {w.path: tuple(w.shape) for w in layer.weights} == {
        f"attention/{part}/{name}": shape
        for part in ("query", "key", "value", "output")
        for name, shape in (("kernel", (8, 8)), ("bias", (8,)))
    }


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="width=8, num_heads=3"):
        Attention(3)(np.ones((1, 2, 8), "float32"))
