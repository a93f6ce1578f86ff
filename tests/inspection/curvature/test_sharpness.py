"""The rise of the loss in a ball or a box, against softmax regression longhand."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.inspection import box_sharpness, sharpness
from tests.once import on_last_backend

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.integers(0, 3, 8)
KERNEL = RNG.standard_normal((4, 3))


def regression():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, use_bias=False)])
    model.set_weights([KERNEL])
    return model


def loss_and_gradient(kernel, x=X, y=Y):
    p = np.exp(x @ kernel)
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    return loss, x.T @ (p - np.eye(3)[y]) / len(y)


def rise(x=X, y=Y, rho=0.05):
    loss, gradient = loss_and_gradient(KERNEL, x, y)
    step = rho * gradient / np.linalg.norm(gradient)
    return loss_and_gradient(KERNEL + step, x, y)[0] - loss


def test_the_rise_over_sam_s_step():
    model = regression()
    found = sharpness(model, X, Y, CROSS_ENTROPY, rho=0.3, batch_size=3)
    np.testing.assert_allclose(found, rise(rho=0.3), rtol=1e-4)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(model.weights[0]), KERNEL.astype("float32")
    )


def test_m_sharpness_is_the_mean_over_groups():
    expected = np.mean([rise(X[i : i + 3], Y[i : i + 3], 0.3) for i in (0, 3)])
    options = {"rho": 0.3, "m": 3, "loss": CROSS_ENTROPY}
    found = sharpness(regression(), X, Y, **options)  # without the last two samples
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    found = sharpness(regression(), [(X[:7], Y[:7]), (X[7:], Y[7:])], **options)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_box_has_its_maximum_at_a_corner():
    # The loss is convex in these weights, so that one of 2¹² corners is the maximum.
    sides = 0.2 * (np.abs(KERNEL) + 1)
    losses = [
        loss_and_gradient(KERNEL + np.reshape(signs, (4, 3)) * sides)[0]
        for signs in itertools.product((-1, 1), repeat=12)
    ]
    before = loss_and_gradient(KERNEL)[0]
    expected = 100 * (max(losses) - before) / (1 + before)
    model = kerasvit.SAM(regression())
    found = box_sharpness(model, X, Y, CROSS_ENTROPY, epsilon=0.2, batch_size=3)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@on_last_backend
def test_the_box_where_the_whole_way_is_too_far():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])

    def hill(y, y_pred):  # highest at the weight 0.3
        return 1 - ops.square(y_pred - 0.3)

    found = box_sharpness(model, np.ones((1, 1)), np.ones(1), hill, epsilon=1, steps=30)
    before = 1 - 0.3**2
    np.testing.assert_allclose(found, 100 * 0.09 / (1 + before), rtol=1e-2)


@on_last_backend
def test_no_gradient_and_no_rise():
    model = regression()
    model.set_weights([np.zeros((4, 3))])

    def flat(y, y_pred):
        return ops.sum(0 * y_pred, axis=-1)

    assert sharpness(model, X, Y, flat) == 0 == box_sharpness(model, X, Y, flat)


@on_last_backend
def test_a_part_of_the_weights():
    rng = np.random.default_rng(2)
    image = keras.Input((4,))
    hidden = layers.Dense(5, activation="tanh", name="hidden")(image)
    model = keras.Model(image, layers.Dense(3, name="head", use_bias=False)(hidden))
    model.set_weights([rng.standard_normal(w.shape) for w in model.weights])
    a, b, c = (ops.convert_to_numpy(w) for w in model.weights)
    features = np.tanh(X @ a + b)
    loss, gradient = loss_and_gradient(c, features)
    step = 0.1 * gradient / np.linalg.norm(gradient)
    expected = loss_and_gradient(c + step, features)[0] - loss
    found = sharpness(model, X, Y, CROSS_ENTROPY, rho=0.1, variables="head")
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@on_last_backend
@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        (sharpness, {"rho": 0}, "`rho` must be a finite number > 0"),
        (sharpness, {"m": 0}, "`m` must be a whole number ≥ 1"),
        (sharpness, {"m": 9}, "`m` must be at most .*Received: m=9"),
        (box_sharpness, {"epsilon": -1}, "`epsilon` must be a finite number > 0"),
        (box_sharpness, {"steps": 0}, "`steps` must be a whole number ≥ 1"),
        (box_sharpness, {"x": X * np.nan}, "loss of the model must be finite"),
        (sharpness, {"x": X * np.nan}, "The loss of the model must be finite"),
        (sharpness, {"x": X[:0], "y": Y[:0]}, "at least one sample"),
        (sharpness, {"y": None}, "iterable of batches"),
    ],
)
def test_arguments(function, options, expected):
    with pytest.raises(ValueError, match=expected):
        function(regression(), **{"x": X, "y": Y, "loss": CROSS_ENTROPY, **options})


@on_last_backend
def test_a_loss_that_is_not_finite_after_the_step():
    def cliff(y, y_pred):
        return ops.sum(y_pred, axis=-1) + ops.log(
            ops.cast(y_pred[:, 0] < 10, "float32")
        )

    with pytest.raises(ValueError, match="after the step .* Take a smaller `rho`"):
        sharpness(regression(), X, Y, cliff, rho=1e3)
