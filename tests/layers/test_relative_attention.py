import numpy as np
import pytest

from kerasvit.layers import QuadraticAttention, RelativeAttention
from tests.contract import check_layer, to_numpy

KINDS = {RelativeAttention: 3 * 7 * 9, QuadraticAttention: 3 * 2 + 3}  # of 3 × 4, + 1


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.7) for w in layer.weights])
    return layer


def score(layer, head, down, across):
    if isinstance(layer, QuadraticAttention):
        center, alpha = to_numpy(layer.center)[head], to_numpy(layer.alpha)[head]
        return -alpha * ((down - center[0]) ** 2 + (across - center[1]) ** 2)
    table = to_numpy(layer.table)[head]
    return table[down + table.shape[0] // 2, across + table.shape[1] // 2]


def longhand(layer, x):
    """Attention computed for each cell and head; cells outside the map are zeros."""
    batch, height, width, channels = x.shape
    values = to_numpy(layer.value.kernel).reshape(channels, layer.num_heads, -1)
    output = to_numpy(layer.output_dense.kernel).reshape(layer.num_heads, -1, 5)
    p, result = layer.padding, np.zeros((batch, height, width, 5))
    for b, i, j, h in np.ndindex(batch, height, width, layer.num_heads):
        weights, found = [], []
        for y in range(-p, height + p):
            for z in range(-p, width + p):
                inside = 0 <= y < height and 0 <= z < width
                cell = x[b, y, z] if inside else np.zeros(channels)
                logit = score(layer, h, y - i, z - j)
                if layer.key_dim:
                    query, key = (
                        to_numpy(dense.kernel).reshape(channels, layer.num_heads, -1)
                        for dense in (layer.query, layer.key)
                    )
                    content = (x[b, i, j] @ query[:, h]) @ (cell @ key[:, h])
                    logit = logit + content / np.sqrt(layer.key_dim)
                weights.append(np.exp(logit))
                found.append(cell @ values[:, h])
        weights = np.array(weights) / np.sum(weights)
        result[b, i, j] += weights @ np.array(found) @ output[h]
    return result + to_numpy(layer.output_dense.bias)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key_dim", [0, 4])
def test_contract(kind, key_dim):
    check_layer(
        kind(3, head_dim=2, filters=5, padding=1, key_dim=key_dim),
        input_shape=(2, 3, 4, 6),
        output_shape=(2, 3, 4, 5),
        parameters=KINDS[kind] + 6 * 6 + 6 * 5 + 5 + 2 * 6 * 3 * key_dim,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding, key_dim", [(0, 0), (1, 0), (1, 2)])
def test_is_softmax_of_content_and_shift(kind, padding, key_dim):
    x = np.random.default_rng(0).normal(size=(2, 2, 3, 4)).astype("float32")
    layer = kind(2, head_dim=3, filters=5, padding=padding, key_dim=key_dim)
    filled(layer, x.shape)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x), atol=1e-4)


def test_the_table_has_every_shift_once():
    layer = RelativeAttention(1, head_dim=1, filters=1, padding=2)
    layer.build((None, 3, 4, 1))
    assert layer.table.shape == (1, 2 * (3 + 2) - 1, 2 * (4 + 2) - 1)
    layer.table.assign(np.arange(99.0).reshape(1, 9, 11))
    assert set(to_numpy(layer.position_scores()).ravel()) == set(range(99))


def test_attention_does_not_depend_on_where_the_map_stands():
    layer = RelativeAttention(2, head_dim=2, filters=3)
    layer = filled(layer, (None, 4, 5, 2))
    scores = to_numpy(layer.position_scores()).reshape(2, 4, 5, 4, 5)
    np.testing.assert_array_equal(
        scores[:, 1:, 1:, 1:, 1:], scores[:, :-1, :-1, :-1, :-1]
    )


def test_variables_have_the_paths_of_the_checkpoint_format():
    layer = QuadraticAttention(2, head_dim=2, filters=3, key_dim=1, name="mix")
    layer.build((None, 4, 5, 2))
    assert sorted(w.path for w in layer.weights) == [
        "mix/alpha", "mix/center", "mix/key/kernel", "mix/output/bias",
        "mix/output/kernel", "mix/query/kernel", "mix/value/kernel",
    ]  # fmt: skip


def test_the_map_has_a_known_size():
    layer = RelativeAttention(2, head_dim=2, filters=3)
    with pytest.raises(ValueError, match="must be known. Received: None × 5"):
        layer.build((None, None, 5, 2))
