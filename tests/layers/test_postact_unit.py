import keras
import numpy as np
import pytest

from kerasvit.layers import GroupNorm, PostactUnit, StandardizedConv
from tests.contract import check_layer, to_numpy


def norm(name):
    return GroupNorm(2, epsilon=1e-5, name=name)


def conv(filters, size, name, **changes):
    return StandardizedConv(filters, size, padding="same", name=name, **changes)


def bottleneck(strides=1, filters=4, projection=False, **changes):
    shortcut = {}
    if projection:
        shortcut = {
            "projection": conv(filters, 1, "projection", strides=strides),
            "projection_norm": norm("projection_norm"),
        }
    return PostactUnit(
        [
            conv(6, 1, "conv_0"),
            conv(6, 3, "conv_1", strides=strides),
            conv(filters, 1, "conv_2"),
        ],
        [norm(f"norm_{i}") for i in range(3)],
        **shortcut,
        **changes,
    )


@pytest.mark.slow
def test_contract():
    check_layer(
        bottleneck(),
        input_shape=(2, 6, 6, 4),
        output_shape=(2, 6, 6, 4),
        parameters=2 * (6 + 6 + 4) + 4 * 6 + 9 * 6 * 6 + 6 * 4,
    )


@pytest.mark.slow
def test_contract_with_projection():
    check_layer(
        bottleneck(strides=2, filters=6, projection=True),
        input_shape=(2, 6, 5, 4),
        output_shape=(2, 3, 3, 6),
        parameters=2 * (6 + 6 + 6 + 6) + 4 * 6 + 9 * 6 * 6 + 6 * 6 + 4 * 6,
    )


def test_two_plain_convolutions_fit_too():
    layer = PostactUnit(
        [
            keras.layers.Conv2D(4, 3, padding="same", use_bias=False, name=f"conv_{i}")
            for i in range(2)
        ],
        [keras.layers.BatchNormalization(name=f"norm_{i}") for i in range(2)],
    )
    check_layer(
        layer,
        input_shape=(2, 5, 5, 4),
        output_shape=(2, 5, 5, 4),
        parameters=2 * (9 * 4 * 4) + 2 * 4 * 4,
    )


@pytest.mark.slow
def test_is_relu_of_the_sum_with_one_between_the_parts():
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")
    layer = bottleneck(projection=True)
    y = to_numpy(layer(x))
    branch = x
    for i in range(3):
        branch = layer.norms[i](layer.convs[i](branch))
        branch = np.maximum(to_numpy(branch), 0 if i < 2 else -np.inf)
    shortcut = to_numpy(layer.projection_norm(layer.projection(x)))
    np.testing.assert_allclose(y, np.maximum(branch + shortcut, 0), atol=1e-5)


@pytest.mark.slow
def test_stochastic_depth_leaves_the_shortcut_or_more_of_the_branch():
    x = np.random.default_rng(0).normal(size=(16, 2, 2, 4)).astype("float32")
    layer = bottleneck(stochastic_depth=0.5)
    found = to_numpy(layer(x, training=True))
    branch = x
    for i in range(3):
        branch = layer.norms[i](layer.convs[i](branch))
        branch = np.maximum(to_numpy(branch), 0 if i < 2 else -np.inf)
    dropped, kept = (np.maximum(x + factor * branch, 0) for factor in (0, 2))
    of_kept = (abs(found - kept) < 1e-5).all((1, 2, 3))
    assert 0 < of_kept.sum() < 16
    np.testing.assert_allclose(to_numpy(layer(x)), np.maximum(x + branch, 0), atol=1e-5)
    expected = np.where(of_kept[:, None, None, None], kept, dropped)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_last_scale_of_zero_leaves_the_shortcut():
    x = np.random.default_rng(0).normal(size=(1, 2, 2, 4)).astype("float32")
    layer = bottleneck()
    layer.build(x.shape)
    layer.norms[-1].gamma.assign(np.zeros(4))
    np.testing.assert_allclose(to_numpy(layer(x)), np.maximum(x, 0), atol=1e-6)
