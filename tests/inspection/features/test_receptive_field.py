"""Effective receptive fields, against formulas and differences."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import Activations, effective_receptive_field
from tests.models.tiny import tiny
from tests.once import on_last_backend

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 8, 8, 3)).astype("float32")


def signs(channels, image, seed=0):
    return np.random.default_rng((seed, image)).choice([-1, 1], channels)


def test_the_field_of_a_convolution_is_its_kernel():
    image = keras.Input((8, 8, 3))
    conv = layers.Conv2D(4, 3, padding="same", data_format="channels_last", name="conv")
    model = keras.Model(image, conv(image))
    kernel = RNG.normal(size=(3, 3, 3, 4))
    conv.set_weights([kernel, np.zeros(4)])
    found = effective_receptive_field(Activations(model, "conv"), X, batch_size=1)
    squares = [((kernel @ signs(4, image)) ** 2).sum(-1) for image in range(2)]
    expected = np.zeros((8, 8))
    expected[3:6, 3:6] = np.sqrt(np.mean(squares, axis=0))
    np.testing.assert_allclose(
        found.fields, expected[None] / expected.max(), rtol=1e-4, atol=1e-6
    )


def small_vit():
    return tiny("VisionTransformer", image_size=8, width=8)


def test_the_field_of_a_transformer_is_that_of_differences():
    model = small_vit()
    found = effective_receptive_field(model, X[:1])
    (tokens,) = Activations(model).model.outputs
    inner = keras.Model(model.inputs[0], tokens)

    def value(images):  # of the token of cell (1, 1), after the class token
        features = ops.convert_to_numpy(inner.predict_on_batch(images))
        return features[:, 1 + 3].astype("float64") @ signs(8, 0)

    steps = 1e-2 * np.eye(192).reshape(192, 8, 8, 3)
    up, down = (value((X[:1] + step).astype("float32")) for step in (steps, -steps))
    gradient = ((up - down) / 2e-2).reshape(8, 8, 3)
    expected = np.sqrt((gradient**2).sum(-1))
    np.testing.assert_allclose(
        found.fields[0], expected / expected.max(), rtol=2e-2, atol=2e-3
    )


@on_last_backend
def test_fields_grow_with_depth_and_weights_stay():
    model = tiny("PreActResNet", image_size=32, depths=[1, 2])
    before = model.get_weights()
    x = RNG.normal(size=(2, 32, 32, 3)).astype("float32")
    found = effective_receptive_field(model, x)
    assert found.fields.shape == (3, 32, 32)
    np.testing.assert_allclose(found.fields.max((1, 2)), 1)
    sides = found.sides()
    assert sides[0] < sides[1] < sides[2]
    for value, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)


@on_last_backend
def test_the_side_is_that_of_a_square_of_the_pixels_above_the_threshold():
    found = effective_receptive_field(small_vit(), X)
    for threshold in (1 - 0.9545, 0.5):
        count = (found.fields[0] > threshold).sum()
        np.testing.assert_allclose(found.sides(threshold), count**0.5)
    with pytest.raises(ValueError, match="`threshold` must be"):
        found.sides(1.0)


@on_last_backend
def test_the_batch_size_does_not_change_the_field():
    model = small_vit()
    one = effective_receptive_field(model, X, batch_size=1).fields
    both = effective_receptive_field(model, X, batch_size=2).fields
    np.testing.assert_allclose(one, both, rtol=1e-3, atol=1e-5)


@on_last_backend
def test_features_that_do_not_depend_on_the_pixels_are_an_error():
    model = small_vit()
    model.get_layer("embedding").kernel.assign(np.zeros((4, 4, 3, 8)))
    with pytest.raises(ValueError, match="'encoder_block_0' by the pixels must be"):
        effective_receptive_field(model, X)
    with pytest.raises(ValueError, match=r"images \(8, 8, 3\)"):
        effective_receptive_field(model, X[:, :4])
