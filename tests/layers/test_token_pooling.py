import numpy as np

from kerasvit.layers import TokenPooling
from tests.contract import to_numpy


def test_against_a_loop_over_cells():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 2 + 5 * 4, 3)).astype("float32")
    cells = np.zeros((2, 5, 4, 7), "float32")  # only its height and width count
    layer = TokenPooling(prefix=2)
    layer(x, cells)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    assert layer.grid == (3, 2)
    kernel, bias = to_numpy(layer.kernel), to_numpy(layer.bias)
    padded = np.pad(x[:, 2:].reshape(2, 5, 4, 3), ((0, 0), (1, 1), (1, 1), (0, 0)))
    pooled = np.empty((2, 3, 2, 6))
    for row, column in np.ndindex(3, 2):
        window = padded[:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        each = np.einsum("bijc,ijcm->bcm", window, kernel)
        pooled[:, row, column] = each.reshape(2, 6) + bias
    prefix = x[:, :2] @ to_numpy(layer.dense.kernel) + to_numpy(layer.dense.bias)
    tokens, found = map(to_numpy, layer(x, cells))
    np.testing.assert_allclose(found, pooled, atol=1e-5)
    expected = np.concatenate([prefix, pooled.reshape(2, 6, 6)], axis=1)
    np.testing.assert_allclose(tokens, expected, atol=1e-5)


def test_shapes_and_configuration():
    layer = TokenPooling(prefix=1)
    shapes = layer.compute_output_shape((None, 1 + 35, 4), (None, 7, 5, 4))
    assert shapes == ((None, 1 + 12, 8), (None, 4, 3, 8))
    unknown = layer.compute_output_shape((None, None, 4), (None, None, None, 4))
    assert unknown == ((None, None, 8), (None, None, None, 8))
    again = TokenPooling.from_config(layer.get_config())
    assert again.prefix == 1


def test_filters_start_as_those_of_pytorch():
    layer = TokenPooling()
    layer.build((None, 5, 512), (None, 2, 2, 512))
    kernel = to_numpy(layer.kernel)
    assert abs(kernel).max() <= 1 / 3  # 1 / √(3 · 3)
    np.testing.assert_allclose(kernel.std(), 1 / 3 / np.sqrt(3), rtol=0.05)
