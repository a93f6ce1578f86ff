import keras
import numpy as np
import pytest

from kerasvit.layers import Conv, MaxPool
from tests.contract import check_layer, to_numpy


def windows(x, edge, strides, fill):
    """(B, H', W', edge, edge, C): the receptive field of every output cell."""
    border = edge // 2
    x = np.pad(x, ((0, 0), *[(border, border)] * 2, (0, 0)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, (edge, edge), axis=(1, 2))
    return np.moveaxis(seen[:, ::strides, ::strides], 3, -1)


@pytest.mark.slow
@pytest.mark.parametrize("size, strides, side", [(1, 1, 5), (3, 2, 3), (7, 2, 3)])
def test_contract(size, strides, side):
    check_layer(
        Conv(6, size, strides=strides),
        input_shape=(2, 5, 5, 4),
        output_shape=(2, side, side, 6),
        parameters=size * size * 4 * 6,
    )


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("shape", [(2, 8, 6, 3), (1, 7, 8, 3)])
def test_pads_alike_on_all_sides(size, strides, shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    layer = Conv(4, size, strides=strides)
    found = to_numpy(layer(x))
    seen = windows(x, size, strides, 0)
    expected = np.einsum("bhwcij,ijcf->bhwf", np.moveaxis(seen, 5, 3), layer.kernel)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "strides", "channels", "filters", "groups", "dtype"),
    [
        # Of 32 groups JAX joins four to a convolution, of 12 three.
        (3, 1, 8, 4, 2, "float32"),
        (3, 2, 128, 64, 32, "float32"),
        (3, 2, 12, 24, 12, "float32"),
        (1, 1, 6, 4, 2, "float32"),
        pytest.param(
            *(3, 2, 8, 4, 2, "float64"),
            marks=pytest.mark.not_on("jax", reason="by a setting of the process"),
        ),
    ],
)
def test_groups_see_their_own_channels(size, strides, channels, filters, groups, dtype):
    """Also in the gradients, for which TensorFlow has no operation in float64."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 6, 7, channels)).astype(dtype)
    first = Conv(channels, 1, dtype=dtype)  # so that maps need a gradient, too
    layer = Conv(filters, size, strides=strides, groups=groups, dtype=dtype)
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=dtype), first, layer])
    seen = windows(to_numpy(first(x)), size, strides, 0)
    seen = seen.reshape(*seen.shape[:-1], groups, -1)  # (B, H, W, k, k, groups, C / n)
    kernel = to_numpy(layer.kernel).copy()
    grouped = (*kernel.shape[:3], groups, -1)
    expected = np.einsum("bhwijgc,ijcgf->bhwgf", seen, kernel.reshape(grouped))
    found = to_numpy(model(x))
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-5)
    y = rng.normal(size=found.shape).astype(dtype)
    # Not a linear loss: on TensorFlow the first kernel could change before its maps are
    # computed, which the gradient would not need for it.
    model.compile(
        keras.optimizers.SGD(1.0),
        lambda y, y_pred: keras.ops.sum(keras.ops.square(y_pred - y)) / 2,
    )
    model.train_on_batch(x, y)
    upstream = found - y
    upstream = upstream.reshape(expected.shape)
    change = np.einsum("bhwijgc,bhwgf->ijcgf", seen, upstream)
    found = (kernel - to_numpy(layer.kernel)).reshape(change.shape)
    np.testing.assert_allclose(found, change, rtol=1e-5, atol=1e-4)


def test_contract_with_groups():
    check_layer(
        Conv(6, 3, strides=2, groups=2),
        input_shape=(2, 5, 5, 4),
        output_shape=(2, 3, 3, 6),
        parameters=9 * 2 * 6,
    )


@pytest.mark.parametrize(("channels", "filters"), [(4, 6), (6, 4)])
def test_groups_that_do_not_divide(channels, filters):
    with pytest.raises(ValueError, match="`groups` must divide.*groups=3"):
        Conv(filters, 3, groups=3)(np.zeros((1, 4, 4, channels), "float32"))


@pytest.mark.parametrize("channels", [8, 12, 16])
def test_the_gradient_of_few_channels_with_a_stride(channels):
    """TensorFlow's own crashes for fewer than 16 channels and an odd batch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 28, 28, channels)).astype("float32")
    upstream = rng.normal(size=(3, 14, 14, 24)).astype("float32")
    model = keras.Sequential([keras.Input(x.shape[1:]), Conv(24, 1, strides=2)])
    before = to_numpy(model.layers[0].kernel).copy()
    model.compile(
        keras.optimizers.SGD(1.0), lambda y, y_pred: keras.ops.sum(y * y_pred)
    )
    model.train_on_batch(x, upstream)
    change = before - to_numpy(model.layers[0].kernel)
    expected = np.einsum("bhwc,bhwf->cf", x[:, ::2, ::2], upstream)
    np.testing.assert_allclose(change[0, 0], expected, atol=1e-3)


def test_starts_uniform_within_one_over_the_root_of_the_inputs():
    layer = Conv(64, 3)
    layer.build((None, 8, 8, 64))
    kernel, bound = to_numpy(layer.kernel), (9 * 64) ** -0.5
    assert 0.99 * bound < np.abs(kernel).max() <= bound
    np.testing.assert_allclose(kernel.var(), bound**2 / 3, rtol=0.02)


def test_an_even_kernel_has_no_middle():
    with pytest.raises(ValueError, match="kernel_size=2"):
        Conv(4, 2)


def test_max_pool_contract():
    check_layer(
        MaxPool(), input_shape=(2, 6, 5, 3), output_shape=(2, 3, 3, 3), parameters=0
    )


@pytest.mark.parametrize("shape", [(2, 8, 6, 3), (1, 7, 5, 3)])
def test_max_pool_does_not_see_its_border(shape):
    x = -1 - np.random.default_rng(0).uniform(size=shape).astype("float32")
    expected = windows(x, 3, 2, -np.inf).max(axis=(3, 4))
    np.testing.assert_array_equal(to_numpy(MaxPool()(x)), expected)
