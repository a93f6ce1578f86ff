import keras
import numpy as np
import pytest

from kerasvit.layers import GroupNormalization
from tests.contract import check_layer, to_numpy


def longhand(x, groups, epsilon):
    parts = x.astype("float64").reshape(*x.shape[:3], groups, -1)
    mean = parts.mean(axis=(1, 2, 4), keepdims=True)
    variance = parts.var(axis=(1, 2, 4), keepdims=True)
    return ((parts - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)


def test_contract():
    check_layer(
        GroupNormalization(2),
        input_shape=(2, 3, 5, 4),
        output_shape=(2, 3, 5, 4),
        parameters=4 + 4,
    )


def test_is_the_formula():
    layer = GroupNormalization(3, epsilon=1e-5)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 6)).astype("float32")
    layer.build(x.shape)
    gamma, beta = rng.normal(size=(2, 6))
    layer.set_weights([gamma, beta])
    expected = longhand(x, 3, 1e-5) * gamma + beta
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_a_small_variance_beside_a_large_mean_keeps_its_digits():
    x = np.random.default_rng(0).normal(30, 0.01, size=(1, 4, 4, 4)).astype("float32")
    found = to_numpy(GroupNormalization(2, epsilon=1e-6)(x))
    np.testing.assert_allclose(found, longhand(x, 2, 1e-6), atol=0.01)


def test_without_scale_and_center():
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")
    layer = GroupNormalization(2, epsilon=1e-5, scale=False, center=False)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(x, 2, 1e-5), atol=1e-5)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="moments are wrong there alone"
)
def test_second_derivatives_are_those_of_finite_differences():
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x, direction, weights = rng.normal(size=(3, 2, 3, 3, 4)).astype("float32")
    layer = GroupNormalization(2, epsilon=1e-3)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(layer(x) * weights) ** 2
        return tape.gradient(value, x)

    start = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(start)
        slope = tf.reduce_sum(gradient(start) * direction)
    found = tape.gradient(slope, start)
    step = 1e-3
    there, back = (gradient(tf.constant(x + s * direction)) for s in (step, -step))
    expected = (there - back) / (2 * step)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=3e-4 * scale)
