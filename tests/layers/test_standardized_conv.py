import numpy as np
import pytest

from kerasvit.layers.standardized_conv import StandardizedConv
from tests.contract import check_layer, to_numpy


def layer_with(kernel, **changes):
    layer = StandardizedConv(kernel.shape[-1], kernel.shape[0], **changes)
    layer.build((None, None, None, kernel.shape[2]))
    layer.set_weights([kernel])
    return layer


@pytest.mark.slow
@pytest.mark.parametrize(
    "padding, strides, side", [("valid", 1, 4), ("same", 2, 3), (1, 2, 3), (1, 1, 6)]
)
def test_contract(padding, strides, side):
    check_layer(
        StandardizedConv(5, 3, strides=strides, padding=padding),
        input_shape=(2, 6, 6, 4),
        output_shape=(2, side, side, 5),
        parameters=3 * 3 * 4 * 5,
    )


@pytest.mark.parametrize("epsilon", [1e-10, 1e-8, 1e-5])
@pytest.mark.parametrize("outside", [False, True])
def test_kernel_is_standardised_by_the_formula(epsilon, outside):
    rng = np.random.default_rng(0)
    # The third filter varies little: there the epsilon shows.
    scale = np.array([1.0, 0.1, 1e-4])
    kernel = (rng.normal(size=(3, 3, 2, 3)) * scale + 0.5).astype("float32")
    layer = layer_with(kernel, epsilon=epsilon, add_to_deviation=outside)
    raw = kernel.astype("float64")
    centred = raw - raw.mean((0, 1, 2))
    variance = raw.var((0, 1, 2))
    deviation = np.sqrt(variance) + epsilon if outside else np.sqrt(variance + epsilon)
    found = to_numpy(layer.standardized_kernel())
    np.testing.assert_allclose(found, centred / deviation, atol=2e-3)
    np.testing.assert_allclose(
        found[..., :2], (centred / deviation)[..., :2], atol=1e-5
    )


def test_filters_of_one_number_become_zeros():
    layer = layer_with(np.array([[[[0.5, -2.0, 3.0]]]], "float32"))
    np.testing.assert_array_equal(to_numpy(layer.standardized_kernel()), 0.0)


def test_explicit_padding_is_symmetric_where_same_is_not():
    kernel = np.random.default_rng(0).normal(size=(3, 3, 1, 1)).astype("float32")
    x = np.zeros((1, 4, 4, 1), "float32")
    x[0, 0, 0] = 1
    applied = to_numpy(layer_with(kernel).standardized_kernel())[..., 0, 0]
    explicit = to_numpy(layer_with(kernel, strides=2, padding=1)(x))
    same = to_numpy(layer_with(kernel, strides=2, padding="same")(x))
    np.testing.assert_allclose(explicit[0, 0, 0, 0], applied[1, 1], rtol=1e-5)
    np.testing.assert_allclose(same[0, 0, 0, 0], applied[0, 0], rtol=1e-5)


def test_unknown_padding():
    with pytest.raises(ValueError, match="number of pixels"):
        StandardizedConv(1, 3, padding="full")
