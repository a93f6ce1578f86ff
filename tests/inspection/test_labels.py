"""Labels beyond a model's classes, of which JAX computes a finite loss."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.inspection import Hessian, gradient_norms, landscape, sharpness

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


def test_an_ignored_class_is_allowed():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=3)
    value, _ = Hessian(functional(), X, Y, loss).loss_and_gradient()
    assert np.isfinite(value)


def test_targets_of_other_losses_are_no_labels():
    value, _ = Hessian(
        functional(), X, 5.0 * np.ones((6, 3)), "mse"
    ).loss_and_gradient()
    assert np.isfinite(value)
