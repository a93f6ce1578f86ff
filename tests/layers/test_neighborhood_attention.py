import numpy as np
import pytest

from kerasvit.layers import Attention, NeighborhoodAttention
from tests.contract import check_layer, to_numpy


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    return layer


def tokens(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def neighbours(i, grid, window, prefix):
    """Indices of the tokens to which token i attends."""
    if i < prefix:
        return list(range(prefix + grid[0] * grid[1]))
    row, column = divmod(i - prefix, grid[1])
    reach = (window - 1) // 2
    seen = list(range(prefix))
    for y in range(max(row - reach, 0), min(row + reach, grid[0] - 1) + 1):
        for x in range(max(column - reach, 0), min(column + reach, grid[1] - 1) + 1):
            seen.append(prefix + y * grid[1] + x)
    return seen


def longhand(layer, x):
    q, k, v, o = (
        [w.astype("float64") for w in part.get_weights()]
        for part in (layer.query, layer.key, layer.value, layer.output_dense)
    )
    size = x.shape[-1] // layer.num_heads
    result = np.zeros(x.shape)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            seen = x[b, neighbours(i, layer.grid, layer.window, layer.prefix)]
            heads = []
            for h in range(layer.num_heads):
                part = slice(h * size, (h + 1) * size)
                query = (x[b, i] @ q[0] + q[1])[part]
                key, value = (
                    (seen @ k[0] + k[1])[:, part],
                    (seen @ v[0] + v[1])[:, part],
                )
                score = np.exp(key @ query / np.sqrt(size))
                heads.append(score @ value / score.sum())
            result[b, i] = np.concatenate(heads) @ o[0] + o[1]
    return result


@pytest.mark.slow
def test_contract():
    check_layer(
        NeighborhoodAttention(2, grid=(3, 4), window=3, prefix=1),
        input_shape=(2, 13, 8),
        output_shape=(2, 13, 8),
        parameters=4 * (8 * 8 + 8),
    )


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 3, 5])
def test_each_patch_gathers_from_its_window_cut_off_at_the_border(window, prefix):
    layer = NeighborhoodAttention(3, grid=(4, 5), window=window, prefix=prefix)
    x = tokens(2, prefix + 20, 12)
    filled(layer, x.shape)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x), atol=2e-4)


def test_a_window_over_the_whole_grid_is_plain_attention():
    x = tokens(2, 13, 8)
    local = filled(NeighborhoodAttention(2, grid=(3, 4), window=7, prefix=1), x.shape)
    plain = filled(Attention(2), x.shape)
    np.testing.assert_allclose(to_numpy(local(x)), to_numpy(plain(x)), atol=1e-6)


def test_weights_have_the_paths_of_plain_attention():
    shape = (None, 12, 8)
    layers = NeighborhoodAttention(2, grid=(3, 4), window=3), Attention(2)
    local, plain = (
        {(w.path.split("/", 1)[1], tuple(w.shape)) for w in filled(a, shape).weights}
        for a in layers
    )
    assert local == plain


def test_pixels_outside_have_no_influence():
    layer = filled(NeighborhoodAttention(2, grid=(1, 6), window=3), (1, 6, 8))
    x = tokens(1, 6, 8)
    other = x.copy()
    other[0, 3:] = 50.0
    first, second = (to_numpy(layer(t))[0] for t in (x, other))
    np.testing.assert_array_equal(first[:2], second[:2])
    assert np.abs(first[2:] - second[2:]).min() > 0


@pytest.mark.parametrize("window", [0, 2, -1])
def test_a_window_has_a_centre(window):
    with pytest.raises(ValueError, match=f"`window` must be an odd.*{window}"):
        NeighborhoodAttention(2, grid=(3, 4), window=window)


def test_tokens_must_fill_the_grid():
    layer = NeighborhoodAttention(2, grid=(3, 4), window=3, prefix=1)
    with pytest.raises(ValueError, match=r"grid of 3 × 4 patches: 13\. Received: 12"):
        layer.build((None, 12, 8))
