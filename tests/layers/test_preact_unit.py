import keras
import numpy as np
import pytest

from kerasvit.layers.preact_unit import PreactUnit
from kerasvit.layers.standardized_conv import StandardizedConv
from tests.contract import check_layer, to_numpy


def norm(i):
    return keras.layers.GroupNormalization(2, epsilon=1e-5, name=f"norm_{i}")


def conv(filters, size, name, **changes):
    return StandardizedConv(filters, size, name=name, **changes)


def bottleneck(strides=1, filters=4, projection=False):
    return PreactUnit(
        [norm(0), norm(1), norm(2)],
        [
            conv(6, 1, "conv_0"),
            conv(6, 3, "conv_1", strides=strides, padding=1),
            conv(filters, 1, "conv_2"),
        ],
        projection=conv(filters, 1, "projection", strides=strides)
        if projection
        else None,
    )


@pytest.mark.slow
def test_contract():
    check_layer(
        bottleneck(),
        input_shape=(2, 6, 6, 4),
        output_shape=(2, 6, 6, 4),
        parameters=2 * (4 + 6 + 6) + 4 * 6 + 9 * 6 * 6 + 6 * 4,
    )


def test_contract_with_projection():
    check_layer(
        bottleneck(strides=2, filters=6, projection=True),
        input_shape=(2, 6, 6, 4),
        output_shape=(2, 3, 3, 6),
        parameters=2 * (4 + 6 + 6) + 4 * 6 + 9 * 6 * 6 + 6 * 6 + 4 * 6,
    )


def test_batch_normalisation_and_plain_convolutions_fit_too():
    layer = PreactUnit(
        [keras.layers.BatchNormalization(name=f"norm_{i}") for i in range(2)],
        [
            keras.layers.Conv2D(4, 3, padding="same", use_bias=False, name=f"conv_{i}")
            for i in range(2)
        ],
        stochastic_depth=0.2,
    )
    x = np.random.default_rng(0).normal(size=(2, 5, 5, 4)).astype("float32")
    layer(x, training=True)
    moved = {w.path.split("/", 1)[1]: to_numpy(w) for w in layer.non_trainable_weights}
    assert np.abs(moved["norm_0/moving_mean"]).max() > 0


def test_the_projection_sees_the_activated_input_and_the_identity_the_raw_one():
    x = np.random.default_rng(0).normal(size=(1, 2, 2, 4)).astype("float32")
    layer = bottleneck()
    layer.build(x.shape)
    layer.convs[-1].kernel.assign(np.zeros((1, 1, 6, 4)))  # standardised: still zero
    np.testing.assert_allclose(to_numpy(layer(x)), x)
    layer = bottleneck(projection=True)
    layer.build(x.shape)
    layer.convs[-1].kernel.assign(np.zeros((1, 1, 6, 4)))
    activated = keras.ops.relu(layer.norms[0](x))
    expected = to_numpy(layer.projection(activated))
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-6)
