import keras
import numpy as np
import pytest

from kerasvit.layers import GroupNorm
from tests.contract import check_layer, to_numpy


def filled(channels, groups, epsilon=1e-5):
    layer = GroupNorm(groups, epsilon=epsilon)
    layer.build((None, None, None, channels))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=channels) for _ in range(2)])
    return layer


def longhand(layer, x):
    gamma, beta = (w.astype("float64") for w in layer.get_weights())
    batch, height, width, channels = x.shape
    groups = x.astype("float64").reshape(batch, height, width, layer.groups, -1)
    centred = groups - groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    normal = centred / np.sqrt(variance + layer.epsilon)
    return normal.reshape(x.shape) * gamma + beta


def test_contract():
    check_layer(
        GroupNorm(3),
        input_shape=(2, 5, 4, 6),
        output_shape=(2, 5, 4, 6),
        parameters=6 + 6,
    )


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_is_the_formula(groups, epsilon):
    layer = filled(6, groups, epsilon)
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 6)).astype("float32")
    x[1] *= 1e-3  # the epsilon shows
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x), atol=1e-5)


@pytest.mark.slow
def test_a_mean_far_from_zero_costs_no_digits_of_the_variance():
    layer = filled(6, 2)
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 6)).astype("float32") + 300
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x), atol=1e-3)


@pytest.mark.slow
def test_has_the_variables_of_keras():
    layer, other = GroupNorm(2), keras.layers.GroupNormalization(2, epsilon=1e-5)
    x = np.random.default_rng(1).normal(size=(2, 3, 3, 4)).astype("float32")
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(other(x)), atol=1e-5)
    assert [w.name for w in layer.weights] == [w.name for w in other.weights]


def test_scale_may_start_at_zero():
    layer = GroupNorm(2, gamma_initializer="zeros")
    assert not np.any(to_numpy(layer(np.ones((1, 2, 2, 4), "float32"))))
    again = GroupNorm.from_config(layer.get_config())
    assert again.gamma_initializer == "zeros"


def test_statistics_of_bfloat16_are_computed_in_float32():
    layer = filled(4, 2)
    half = GroupNorm(2, dtype="mixed_bfloat16")
    half.build((None, None, None, 4))
    half.set_weights(layer.get_weights())
    # Halves and wholes, exact in bfloat16; their sum of squares is not.
    x = np.random.default_rng(1).integers(-4, 5, (1, 64, 64, 4)) / 2 + 8
    result = half(x.astype("float32"))
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    np.testing.assert_allclose(to_numpy(result), longhand(layer, x), atol=0.02)


@pytest.mark.only_on("tensorflow", reason="where Keras's own are wrong")
def test_second_derivatives():
    import tensorflow as tf

    layer = GroupNorm(2, dtype="float64")
    layer.build((None, None, None, 4))
    rng = np.random.default_rng(0)
    x, v, w = (tf.constant(rng.normal(size=(1, 3, 3, 4))) for _ in range(3))

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x) ** 2 * w)
        return tape.gradient(loss, x)

    with tf.GradientTape() as tape:
        tape.watch(x)
        product = tf.reduce_sum(gradient(x) * v)
    step = 1e-5
    slope = (gradient(x + step * v) - gradient(x - step * v)) / (2 * step)
    np.testing.assert_allclose(tape.gradient(product, x), slope, atol=1e-6)


def test_no_image():
    assert filled(6, 2)(np.zeros((0, 3, 3, 6), "float32")).shape == (0, 3, 3, 6)


def test_channels_that_groups_do_not_divide():
    with pytest.raises(ValueError, match="multiple of the 32 groups. Received: 48"):
        GroupNorm().build((None, 4, 4, 48))
