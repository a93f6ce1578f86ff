from pathlib import Path

import keras
import numpy as np
import pytest

from kerasvit.layers import RelativePositionBias
from tests.contract import to_numpy

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = GOLDEN / "relative_position_bias" / "beit.npz"
with np.load(RECORDED) as arrays:
    # timm.layers.resize_rel_pos_bias_table of timm 1.0.31, with `old_window_size` and
    # the three rows of the class token.
    TIMM = dict(arrays)


def layer_of(grid, **options):
    layer = RelativePositionBias(2, grid, **options)
    layer.build((None, 8, 8, 3))
    rng = np.random.default_rng(0)
    layer.biases.assign(rng.normal(size=layer.biases.shape))
    return layer


def longhand(table, grid):
    """Biases (heads, N, N), one pair of tokens after the other."""
    height, width = grid
    cells = [(y, x) for y in range(height) for x in range(width)]
    to_patches, of_patches, itself = table[-3:]
    found = np.zeros((1 + len(cells), 1 + len(cells), table.shape[1]))
    found[0, 0], found[0, 1:], found[1:, 0] = itself, to_patches, of_patches
    for i, (y, x) in enumerate(cells, 1):
        for j, (row, column) in enumerate(cells, 1):
            down, right = y - row + height - 1, x - column + width - 1
            found[i, j] = table[down * (2 * width - 1) + right]
    return np.moveaxis(found, -1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("grid", [(2, 2), (2, 3), (4, 1), (1, 1)])
def test_a_bias_for_each_pair_of_tokens(grid):
    layer = layer_of(grid)
    height, width = grid
    assert layer.biases.shape == ((2 * height - 1) * (2 * width - 1) + 3, 2)
    image = np.zeros((1, 8, 8, 3), "float32")
    expected = longhand(to_numpy(layer.biases), grid)[None]
    np.testing.assert_array_equal(to_numpy(layer(image)), expected.astype("float32"))
    assert layer.compute_output_shape(image.shape) == expected.shape


@pytest.mark.parametrize("case", sorted({key.split("/")[0] for key in TIMM}))
def test_resamples_as_timm(case):
    source, grid = ([int(n) for n in w.split("x")] for w in case.split("_"))
    layer = RelativePositionBias(2, grid)
    layer.build((None, 8, 8, 3))
    table = layer.resample(TIMM[f"{case}/table"], source_grid=tuple(source))
    np.testing.assert_allclose(table, TIMM[f"{case}/timm"], atol=1e-5)
    np.testing.assert_array_equal(table[-3:], TIMM[f"{case}/table"][-3:])


def any_size(layer):
    """A model of the biases for images of any size, which `predict` compiles."""
    image = keras.Input((None, None, 3))
    # `predict` joins batches along the first axis.
    return keras.Model(image, layer(image) + 0 * image[:, :1, :1, :1])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["geometric_linear", "bilinear"])
def test_resamples_in_the_graph(kernel):
    options = {"patch_size": 4, "resampling_kernel": kernel}
    layer = layer_of((4, 6), **options)
    model = any_size(layer)
    assert model.output_shape == (None, 2, None, None)
    table = to_numpy(layer.biases)
    for grid in ((4, 6), (6, 4), (4, 3), (7, 9)):  # TensorFlow relaxes the shapes
        image = np.zeros((1, 4 * grid[0], 4 * grid[1], 3), "float32")
        other = RelativePositionBias(2, grid)
        other.build(image.shape)
        resampled = other.resample(table, source_grid=(4, 6), kernel=kernel)
        expected = longhand(resampled, grid)[None]
        found = model.predict(image, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=f"{grid}")
        np.testing.assert_allclose(to_numpy(layer(image)), expected, atol=1e-5)
        if grid == (4, 6):
            np.testing.assert_array_equal(resampled, table)


def test_tables_of_unknown_grids():
    layer = layer_of((4, 6))
    rows = 5 * 3 + 3
    with pytest.raises(ValueError, match="has 18 rows.*4 × 6.*`source_grid"):
        layer.resample(np.zeros((rows, 2)))
    assert layer.resample(np.zeros((rows, 2)), source_grid=(3, 2)).shape == (80, 2)
    square = layer.resample(np.ones((52, 2)))
    np.testing.assert_allclose(square, np.ones((80, 2)), atol=1e-12)
    with pytest.raises(ValueError, match="models have at most"):
        layer.resample(np.broadcast_to(np.float32(0), (2**21, 2)))


def test_configuration():
    layer = layer_of((4, 6), patch_size=4, resampling_kernel="bilinear")
    config = layer.get_config()
    assert RelativePositionBias.from_config(config).get_config() == config
    ((path, method),) = layer.resamplers().items()
    assert path.endswith("/table")
    assert method == layer.resample
