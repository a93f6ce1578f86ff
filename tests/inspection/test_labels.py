"""Labels beyond a model's classes, of which JAX computes a finite loss."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.inspection import Hessian, gradient_norms, landscape, sharpness
from tests.once import on_last_backend

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
Y = np.array([0, 1, 2, 1, 3, 2])


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)


def functional():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3)])


def subclass():
    model = Subclass()
    model(X)
    return model


@pytest.mark.parametrize("build", [functional, subclass])
@pytest.mark.parametrize("loss", [LOSS, "sparse_categorical_crossentropy"])
@pytest.mark.parametrize("label", [3, -1])
def test_a_label_beyond_the_classes_is_named(build, loss, label):
    y = np.where(Y == 3, label, Y)
    with pytest.raises(
        ValueError, match=rf"\[0, 2\], for the 3 .* the label {label}\."
    ):
        Hessian(build(), X, y, loss, batch_size=4).loss_and_gradient()


@pytest.mark.parametrize("tool", [sharpness, landscape, gradient_norms])
def test_every_loss_at_other_weights_checks_labels(tool):
    with pytest.raises(ValueError, match="for the 3 classes .* the label 3"):
        tool(functional(), X, Y[:, None], LOSS)


@pytest.mark.parametrize("batch_size", [2, 6])
def test_samples_of_the_ignored_class_are_left_out_of_the_mean(batch_size):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=9)
    model, y = functional(), np.where(Y == 1, 9, Y % 3)  # one batch of 2 has one label
    kept = y != 9
    expected = Hessian(model, X[kept], y[kept], LOSS).loss_and_gradient()
    hessian = Hessian(model, X, y, loss, batch_size=batch_size)
    for found, exact in zip(hessian.loss_and_gradient(), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    found = landscape(model, X, y, loss, grid=[[0], [0]], batch_size=batch_size).loss
    np.testing.assert_allclose(found, [[expected[0]]], rtol=1e-5)


@on_last_backend
def test_an_ignored_class_of_maps_is_an_error():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=3)
    model = keras.Sequential([keras.Input((2, 4)), layers.Dense(3)])
    with pytest.raises(ValueError, match="`ignore_class` needs outputs .N, classes"):
        Hessian(model, X.reshape(3, 2, 4), Y.reshape(3, 2), loss).loss_and_gradient()


def test_targets_of_other_losses_are_no_labels():
    value, _ = Hessian(
        functional(), X, 5.0 * np.ones((6, 3)), "mse"
    ).loss_and_gradient()
    assert np.isfinite(value)
