from pathlib import Path

import numpy as np
import pytest

from kerasvit.layers import MLP, SwinBlock, WindowAttention
from tests.contract import check_layer, to_numpy

PROJECTIONS = 4 * (8 * 8 + 8)
RECORDED = Path(__file__).parents[1] / "golden" / "relative_position_bias" / "timm.npz"


def longhand(layer, x):
    """Attention computed for each cell, over all cells of its window."""
    q, k, v, o = (
        [w.astype("float64") for w in sub.get_weights()]
        for sub in (layer.query, layer.key, layer.value, layer.output_dense)
    )
    size = x.shape[-1] // layer.num_heads
    query, key, value = (x @ w[0] + w[1] for w in (q, k, v))
    table = to_numpy(layer.position_bias)
    (down, right), (h, w) = layer.shift, layer.window
    _, height, width, _ = x.shape
    # Windows are cut at the edges of the map: no attention across an edge.
    cells = [(r, c) for r in range(height) for c in range(width)]
    window = {(r, c): ((r - down) // h, (c - right) // w) for r, c in cells}
    result = np.zeros(x.shape)
    for r, c in cells:
        seen = [cell for cell in cells if window[cell] == window[r, c]]
        rows = [(r - y + h - 1) * (2 * w - 1) + c - x + w - 1 for y, x in seen]
        for head in range(layer.num_heads):
            part = slice(head * size, (head + 1) * size)
            keys, values = (
                np.stack([a[:, y, x, part] for y, x in seen], 1) for a in (key, value)
            )
            score = np.einsum("bd,bnd->bn", query[:, r, c, part], keys) / size**0.5
            score = np.exp(score + table[rows, head])
            weights = score / score.sum(-1, keepdims=True)
            result[:, r, c, part] = np.einsum("bn,bnd->bd", weights, values)
    return result @ o[0] + o[1]


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    return layer


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True])
def test_contract(shifted):
    check_layer(
        WindowAttention(2, window_size=2, shifted=shifted),
        input_shape=(2, 4, 6, 8),
        output_shape=(2, 4, 6, 8),
        parameters=PROJECTIONS + 9 * 2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    "grid, window_size, window",
    [
        ((6, 3), 3, (3, 3)),
        ((4, 8), 4, (4, 4)),
        ((2, 6), 3, (2, 3)),  # one side shrinks and is not shifted
        ((2, 3), 5, (2, 3)),
    ],
)
def test_each_token_attends_within_its_window(grid, window_size, window, shifted):
    x = np.random.default_rng(0).normal(size=(2, *grid, 4)).astype("float32")
    layer = filled(
        WindowAttention(2, window_size=window_size, shifted=shifted), x.shape
    )
    assert layer.window == window
    moved = [shifted and s > window_size for s in grid]
    assert layer.shift == tuple(window_size // 2 * m for m in moved)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x), atol=1e-4)


def test_without_bias_of_query_key_and_value():
    layer = WindowAttention(2, window_size=2, use_bias=False)
    layer.build((None, 4, 4, 8))
    assert sum(len(w.shape) == 1 for w in layer.weights) == 1


def test_windows_must_fill_the_map():
    with pytest.raises(ValueError, match="6 × 4 × 8, num_heads=2, window_size=4"):
        WindowAttention(2, window_size=4).build((None, 6, 4, 8))


def test_heads_must_divide_the_channels():
    with pytest.raises(ValueError, match="4 × 4 × 8, num_heads=3"):
        WindowAttention(3, window_size=4).build((None, 4, 4, 8))


with np.load(RECORDED) as arrays:
    # timm.layers.resize_rel_pos_bias_table of timm 1.0.31, with `old_window_size`.
    TIMM = dict(arrays)


@pytest.mark.parametrize("case", sorted({key.split("/")[0] for key in TIMM}))
def test_resamples_as_timm(case):
    source, window = ([int(n) for n in w.split("x")] for w in case.split("_"))
    layer = WindowAttention(2, window_size=max(window))
    layer.build((None, *window, 4))
    table = layer.resample(TIMM[f"{case}/table"], source_grid=source)
    np.testing.assert_allclose(table, TIMM[f"{case}/timm"], atol=1e-5)


def test_a_table_of_the_same_window_stays():
    layer = WindowAttention(2, window_size=7)
    layer.build((None, 3, 14, 4))
    table = np.random.default_rng(0).normal(size=(5 * 13, 2))
    np.testing.assert_array_equal(layer.resample(table), table)


def test_a_table_of_an_unknown_window():
    layer = WindowAttention(2, window_size=4)
    layer.build((None, 4, 4, 4))
    with pytest.raises(ValueError, match="has 15 rows.*`window_size`"):
        layer.resample(np.zeros((3 * 5, 2)))
    assert layer.resample(np.zeros((3 * 5, 2)), source_grid=(2, 3)).shape == (49, 2)


def block(shifted=True):
    attention = WindowAttention(2, window_size=2, shifted=shifted, name="attention")
    return SwinBlock(attention, MLP(16, name="mlp"), epsilon=1e-5)


@pytest.mark.slow
def test_swin_block_contract():
    check_layer(
        block(),
        input_shape=(2, 4, 6, 8),
        output_shape=(2, 4, 6, 8),
        parameters=PROJECTIONS + 9 * 2 + 4 * 8 + 2 * 8 * 16 + 16 + 8,
    )


def test_swin_block_resamples_only_the_table():
    layer = block()
    layer.build((None, 4, 6, 8))
    assert layer.grid == (4, 6)
    ((path, resample),) = layer.resamplers().items()
    assert path.endswith("/attention/position_bias")
    table = resample(np.ones((25, 2)))
    np.testing.assert_allclose(table, np.ones((9, 2)), atol=1e-12)
