"""Errors for models that cannot be differentiated twice."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import Hessian, largest_eigenvalue

pytestmark = pytest.mark.slow

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
Y = np.array([0, 1, 2, 1, 1, 2])


def dense_net():
    image = keras.Input((4,))
    x = layers.Dense(5, activation="tanh", name="hidden")(image)
    return keras.Model(image, layers.Dense(3, name="head")(x))


def model_of_half_precision():
    keras.config.set_dtype_policy("bfloat16")
    return dense_net()


def frozen():
    model = dense_net()
    model.trainable = False
    return model


def quantised():
    model = dense_net()
    model.quantize("int8")
    return model


def compiled_with(**options):
    model = dense_net()
    model.compile(**options)
    return model


@pytest.mark.parametrize(
    ("build", "arguments", "expected"),
    [
        (dense_net, (X, Y[:3], CROSS_ENTROPY), r"same number of samples.*\[3, 6\]"),
        (dense_net, (X, [0, 1], CROSS_ENTROPY), "must be arrays .*ndarray.*int"),
        (dense_net, (X, None, CROSS_ENTROPY), "iterable of batches .*ndarray"),
        (
            dense_net,
            ((pair for pair in [(X, Y)]), None, CROSS_ENTROPY),
            "several times.*Received: generator",
        ),
        (dense_net, (X, Y), "`loss` must be .*compiled with one loss. Received: None"),
        (
            lambda: compiled_with(loss={"head": "mse"}),
            (X, Y),
            "function of targets and outputs.*Received: .*'head': 'mse'",
        ),
        (
            dense_net,
            (X, Y, keras.losses.MeanSquaredError(reduction="sum")),
            'mean over the samples.* with reduction="sum"',
        ),
        (quantised, (X, Y, CROSS_ENTROPY), "2 quantised layers, .'hidden', 'head'.*"),
        (frozen, (X, Y, CROSS_ENTROPY), "must have trainable variables"),
        (model_of_half_precision, (X, Y, CROSS_ENTROPY), "float32, .*bfloat16"),
        (
            lambda: keras.Sequential([layers.Dense(2)]),
            (X, Y, CROSS_ENTROPY),
            "`model` has no variables yet",
        ),
        (lambda: layers.Dense(2), (X, Y, CROSS_ENTROPY), "must be a keras.Model"),
    ],
)
def test_attention_that_cannot_be_inspected(build, arguments, expected):
    with pytest.raises(ValueError, match=expected):
        Hessian(build(), *arguments)


def test_a_pattern_that_is_found_nowhere_names_paths_that_are_near():
    with pytest.raises(ValueError, match=r"'hiden/kernel'.*'hidden/kernel'"):
        Hessian(dense_net(), X, Y, CROSS_ENTROPY, variables="hiden/kernel")


def test_a_pattern_that_is_no_regular_expression():
    with pytest.raises(ValueError, match=r"regular expression\. Received: 'a\('"):
        Hessian(dense_net(), X, Y, CROSS_ENTROPY, variables="a(")


@pytest.mark.parametrize("size", [0, 2.5])
def test_batch_size(size):
    with pytest.raises(ValueError, match=f"`batch_size` .*Received: batch_size={size}"):
        Hessian(dense_net(), X, Y, CROSS_ENTROPY, batch_size=size)


@pytest.mark.parametrize(
    ("data", "loss", "expected"),
    [
        (([(X, Y, Y)], None), CROSS_ENTROPY, r"pair \(x, y\).*Received: tuple of 3"),
        (([], None), CROSS_ENTROPY, "at least one sample"),
        ((X[:0], Y[:0]), CROSS_ENTROPY, "at least one sample"),
        ((X, Y), lambda y, y_pred: 1.0, "must return a tensor.*Received: 1.0"),
        ((X * np.nan, Y), CROSS_ENTROPY, "The loss of the model must be finite"),
    ],
)
def test_errors_raised_in_the_hessian_product(data, loss, expected):
    hessian = Hessian(dense_net(), *data, loss)
    with pytest.raises(ValueError, match=expected):
        hessian.eigenpairs()


def test_derivatives_that_are_not_finite():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False)])
    model.weights[0].assign([[0.0]])

    def root(y, y_pred):
        return ops.sqrt(y_pred)

    given = (model, np.ones((2, 1)), np.ones(2), root)
    with pytest.raises(ValueError, match="second derivatives of the model must be fin"):
        largest_eigenvalue(*given)
    with pytest.raises(ValueError, match="The gradient of the model must be finite"):
        Hessian(*given).loss_and_gradient()


def test_a_vector_of_another_size():
    with pytest.raises(ValueError, match=r"each of the 43 .*Received: shape \(42,\)"):
        Hessian(dense_net(), X, Y, CROSS_ENTROPY) @ np.zeros(42)
