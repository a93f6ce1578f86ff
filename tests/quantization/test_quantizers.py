"""Rounding functions against longhand arithmetic, and their gradients."""

import keras
import numpy as np
import pytest

from kerasvit.quantization import Log2, TwinUniform, Uniform
from tests.contract import to_numpy

X = np.array([-9, -1.3, -0.2, -0.05, 0, 0.02, 0.21, 0.75, 2.6, 9], "float32")
SHARES = np.array([0, 1e-9, 1e-3, 0.01, 0.06, 0.12, 0.13, 0.5, 0.8, 1], "float32")


def uniform(x, scale, zero, lowest, highest):
    """Python's `round` rounds halves to even, too."""
    number = min(max(round(float(x / scale)) + zero, lowest), highest)
    return (number - zero) * scale


def computed(quantizer, x):
    """The tensor's rounded values, after a check that those of NumPy are equal."""
    found = to_numpy(quantizer(keras.ops.convert_to_tensor(x)))
    np.testing.assert_allclose(quantizer.rounded(x)[0], found, rtol=1e-6, atol=0)
    return found


def test_a_range_and_its_zero_point():
    quantizer = Uniform.of_range(-1.0, 2.0, 4)
    scale, zero = 3 / 15, 5
    assert quantizer.scale == pytest.approx(scale) and quantizer.zero == zero
    expected = [uniform(x, scale, zero, 0, 15) for x in X]
    np.testing.assert_allclose(computed(quantizer, X), expected, atol=1e-6)
    assert min(expected) == pytest.approx(-1) and max(expected) == pytest.approx(2)


@pytest.mark.parametrize(("low", "high", "zero"), [(1, 3, 0), (-3, -1, 15), (0, 0, 0)])
def test_zero_is_always_exact(low, high, zero):
    quantizer = Uniform.of_range(low, high, 4)
    assert quantizer.zero == zero and quantizer.scale in (np.float32(0.2), 1)
    assert computed(quantizer, np.zeros(2, "float32")).tolist() == [0, 0]


def test_symmetric_channels():
    kernel = np.array([[1.0, -0.3, 0], [-2.0, 0.04, 0]], "float32")
    quantizer = Uniform.symmetric(np.abs(kernel).max(0, keepdims=True), 3)
    scales = [2 / 3, 0.1, 1]
    np.testing.assert_allclose(quantizer.scale[0], scales, rtol=1e-6)
    expected = [[uniform(x, s, 0, -3, 3) for x, s in zip(r, scales)] for r in kernel]
    np.testing.assert_allclose(computed(quantizer, kernel), expected, atol=1e-6)


@pytest.mark.parametrize("bits", [3, 6])
def test_two_ranges_of_a_softmax(bits):
    shift, steps = 3, 2 ** (bits - 1) - 1
    large = 1 / steps
    expected = [
        uniform(x, large / 8 if x < 1 / 8 else large, 0, 0, steps) for x in SHARES
    ]
    found = computed(TwinUniform.of_softmax(shift, bits), SHARES)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[-1] == 1


def test_two_ranges_of_a_gelu():
    steps = 7  # of 4 bits
    small = 0.17 / steps
    expected = [
        uniform(x, small, 0, -steps, 0) if x < 0 else uniform(x, 4 * small, 0, 0, steps)
        for x in X
    ]
    found = computed(TwinUniform.of_gelu(-0.17, 2, 4), X)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[0] == pytest.approx(-0.17)


def test_powers_of_two():
    found = computed(Log2(3), SHARES)
    exponents = [round(-np.log2(float(x))) if x else np.inf for x in SHARES]
    expected = [2.0**-q if q < 8 else 0 for q in exponents]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert exponents[4:] == [4, 3, 3, 1, 0, 0]


@keras.saving.register_keras_serializable("tests")
class Rounded(keras.layers.Layer):
    """Returns its weights, rounded, whatever its input is."""

    def __init__(self, quantizer, values):
        super().__init__()
        self.quantizer, self.values = quantizer, values

    def build(self, shape):
        start = keras.initializers.Constant(self.values)
        self.kernel = self.add_weight(shape=self.values.shape, initializer=start)

    def call(self, x):
        return self.quantizer(self.kernel) + 0 * x


CASES = {
    "range": (Uniform.of_range(-1.5, 3.0, 4), X, (X > -2) & (X < 4)),
    "softmax": (TwinUniform.of_softmax(3, 4), SHARES, SHARES <= 1),
    "gelu": (TwinUniform.of_gelu(-0.25, 3, 4), X, (X > -0.27) & (X < 2)),
    "log2": (Log2(3), SHARES, SHARES > 2**-7.5),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_pass_within_the_range(name):
    quantizer, x, inside = CASES[name]
    layer = Rounded(quantizer, x)
    model = keras.Sequential([keras.Input((len(x),)), layer])
    model.compile(keras.optimizers.SGD(1.0), lambda y, found: keras.ops.sum(y * found))
    weights = np.arange(1, len(x) + 1, dtype="float32")
    model.fit(x[None], weights[None], verbose=0)
    moved = x - to_numpy(layer.kernel)
    np.testing.assert_allclose(moved, np.where(inside, weights, 0), atol=1e-5)


def test_tensors_of_16_bits_keep_their_dtype():
    x = keras.ops.cast(X, "bfloat16")
    found = Uniform.of_range(-1, 1, 4)(x)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
