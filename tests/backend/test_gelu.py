"""The exact GELU and its derivatives, compared with their definitions."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from kerasvit.ops import gelu
from tests.contract import to_numpy

POINTS = np.concatenate([np.linspace(-12, 12, 4001), [-1e30, 0, 1e30]])


def density(x):
    return np.exp(-(x**2) / 2) / (2 * np.pi) ** 0.5


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 1e-6), ("bfloat16", 2**-8), ("float16", 2**-10)],
)
def test_values(dtype, tolerance):
    x = ops.cast(POINTS[:-3], dtype)
    found = gelu(x)
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    exact = to_numpy(ops.cast(x, "float32")).astype("float64")
    expected = exact * special.ndtr(exact)
    found = to_numpy(ops.cast(found, "float32"))
    np.testing.assert_allclose(found, expected, tolerance, tolerance)


def test_ends():
    x = ops.convert_to_tensor(np.array([-1e30, -20, 0, 20, 1e30, np.nan], "float32"))
    expected = [0, 0, 0, 20, 1e30, np.nan]
    np.testing.assert_allclose(to_numpy(gelu(x)), expected, 1e-6, 1e-5)


@pytest.mark.not_on("torch", reason="PyTorch computes Keras's GELU")
def test_derivatives():
    x = POINTS.astype("float32")
    first, *seconds = derivatives(x)
    expected = special.ndtr(POINTS) + POINTS * density(POINTS)
    np.testing.assert_allclose(first, expected, atol=1e-6)
    expected = (2 - POINTS**2) * density(POINTS)
    for second in seconds:
        np.testing.assert_allclose(second, expected, atol=2e-6)


def derivatives(x):
    """First and second ones, the second by both kinds of differentiation."""
    if keras.backend.backend() == "jax":
        import jax

        first = jax.grad(lambda x: gelu(x).sum())
        _, forward = jax.jvp(first, (x,), (np.ones_like(x),))
        return first(x), forward, jax.grad(lambda x: first(x).sum())(x)
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    with (
        tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward,
        tf.GradientTape() as outer,
    ):
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = gelu(x)
        first = inner.gradient(y, x)
    return first.numpy(), forward.jvp(first).numpy(), outer.gradient(first, x).numpy()
