import keras
import numpy as np
import pytest

from kerasvit.layers import LocalAttention
from tests.contract import check_layer, to_numpy


def layer(**changes):
    kwargs = {"num_heads": 3, "window_size": 2, "head_width": 5, **changes}
    return LocalAttention(6, **kwargs)


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer


def longhand(layer, x):
    """Attention computed for each pixel, as in the paper."""
    weights = {w.path.split("/", 1)[1]: to_numpy(w) for w in layer.weights}
    q, k, v = (weights[f"{name}/kernel"] for name in ("query", "key", "value"))
    edge, size = layer.window_size, layer.head_width
    result = np.zeros((*x.shape[:-1], layer.width))
    for b, y, z in np.ndindex(x.shape[:-1]):
        top, left = y - y % edge, z - z % edge
        seen = [(top + i, left + j) for i in range(edge) for j in range(edge)]
        heads = []
        for h in range(layer.num_heads):
            part = slice(h * size, (h + 1) * size)
            query = x[b, y, z] @ q[:, part]
            scores = [
                query @ (x[b, m, n] @ k[:, part]) / np.sqrt(size)
                + weights["position_bias"][m - y + edge - 1, n - z + edge - 1]
                for m, n in seen
            ]
            share = np.exp(scores) / np.exp(scores).sum()
            values = [x[b, m, n] @ v[:, part] for m, n in seen]
            heads.append(share @ np.array(values))
        result[b, y, z] = np.concatenate(heads) @ weights["output/kernel"]
    return result + weights["output/bias"]


@pytest.mark.slow
def test_contract():
    check_layer(
        layer(),
        input_shape=(2, 4, 6, 4),
        output_shape=(2, 4, 6, 6),
        parameters=3 * 4 * 15 + 15 * 6 + 6 + 3 * 3,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape, edge", [((2, 4, 6, 4), 2), ((1, 3, 3, 4), 3)])
def test_is_attention_inside_windows_with_a_bias_by_distance(shape, edge):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    attention = filled(layer(window_size=edge), shape)
    found = to_numpy(attention(x))
    np.testing.assert_allclose(found, longhand(attention, x), atol=1e-4)


def test_a_pixel_outside_the_window_is_not_seen():
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")
    attention = filled(layer(), x.shape)
    before = to_numpy(attention(x))
    x[0, 0, 0] += 1
    moved = np.abs(to_numpy(attention(x)) - before).max(axis=(0, 3)) > 0
    expected = np.zeros((4, 4), bool)
    expected[:2, :2] = True
    np.testing.assert_array_equal(moved, expected)


def test_variables_have_the_same_paths_and_shapes_on_every_backend():
    attention = LocalAttention(
        6, num_heads=3, window_size=2, head_width=5, name="attention"
    )
    attention.build((None, 4, 6, 4))
    assert {w.path: tuple(w.shape) for w in attention.weights} == {
        "attention/query/kernel": (4, 15),
        "attention/key/kernel": (4, 15),
        "attention/value/kernel": (4, 15),
        "attention/output/kernel": (15, 6),
        "attention/output/bias": (6,),
        "attention/position_bias": (3, 3),
    }


def test_starts_as_torch_starts_it():
    attention = LocalAttention(512, num_heads=4, window_size=7)
    attention.build((None, 7, 7, 256))
    table = to_numpy(attention.position_bias)
    np.testing.assert_allclose(table.std(), 0.02, rtol=0.2)
    for variable, inputs in (
        (attention.query.kernel, 256),
        (attention.output_dense.kernel, 256),
        (attention.output_dense.bias, 256),
    ):
        values, bound = to_numpy(variable), inputs**-0.5
        assert 0.98 * bound < np.abs(values).max() <= bound


def test_windows_must_cover_the_map():
    with pytest.raises(ValueError, match="4 × 5. Choose multiples of 2"):
        layer()(keras.ops.ones((1, 4, 5, 4)))
