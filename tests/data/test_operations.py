"""Compares the changes of images with those of keras.layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasvit.data import AUGMENTATIONS, operations
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]  # all of it is tf.data
RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.uniform(0, 255, (17, 24, 3)).astype("float32")
LOW, HIGH = (0.2, 0.3, 0.1), (0.9, 0.8, 0.7)  # random numbers
layers = keras.layers


def applied(operation, draws, image=IMAGE):
    return np.asarray(operation(tf.constant(image), tf.constant(draws, "float32")))


def transformed(layer, parameters, image=IMAGE):
    layer.backend.set_backend("tensorflow")
    parameters = {
        name: tf.constant(value, "uint8" if name == "shift_factor" else "float32")
        for name, value in parameters.items()
    }
    return np.asarray(layer.transform_images(tf.constant(image)[None], parameters))[0]


def between(low, high, draw):
    return low + (high - low) * draw


@pytest.mark.parametrize("draws", [LOW, HIGH])
def test_colours_are_those_of_keras(draws):
    options, draw = {"value_range": (0, 255), "dtype": "float32"}, draws[0]
    color = between(-0.8, 0.8, draw)
    both = [
        (
            operations.brightness(0.8),
            layers.RandomBrightness(0.8, **options),
            {"rgb_delta": [[[[255 * color]]]]},
        ),
        (
            operations.contrast(0.8),
            layers.RandomContrast(0.8, **options),
            {"contrast_factor": [[[[between(1, 1.8, draw)]]]]},
        ),
        (
            operations.saturation(0.8),
            layers.RandomColorDegeneration(0.8, **options),
            {"factor": [[[[color]]]]},
        ),
        (
            operations.sharpness(0.8),
            layers.RandomSharpness(0.8, **options),
            {"factor": [between(0, 0.8, draw)]},
        ),
        (
            operations.posterize(4),
            layers.RandomPosterization(4, **options),
            {"shift_factor": [7 - int(3 * draw)]},
        ),
        (
            operations.solarize(0.8),
            layers.Solarization(threshold_factor=0.8, **options),
            {"additions": [[[[0]]]], "thresholds": [[[[0.8 * 255 * draw]]]]},
        ),
        (operations.auto_contrast, layers.AutoContrast(**options), {}),
    ]
    for operation, layer, parameters in both:
        np.testing.assert_allclose(
            applied(operation, draws),
            transformed(layer, parameters),
            atol=1e-3,
            err_msg=type(layer).__name__,
        )


def test_strengths_are_those_of_keras():
    """The ranges that `test_colours_are_those_of_keras` draws from."""
    factors = {
        layers.RandomBrightness: (-0.8, 0.8),
        layers.RandomContrast: (0, 0.8),  # the factor minus 1
        layers.RandomColorDegeneration: (-0.8, 0.8),
        layers.RandomSharpness: (0, 0.8),
    }
    assert {layer: layer(0.8).factor for layer in factors} == factors
    assert layers.RandomPosterization(4).factor == (1, 4)


@pytest.mark.parametrize("draws", [LOW, HIGH])
def test_moved_pixels_are_those_of_keras(draws):
    options = {"fill_mode": "constant", "interpolation": "nearest", "dtype": "float32"}
    grey = {"fill_value": operations.GREY, **options}
    y, x = (between(-0.4, 0.4, draw) for draw in draws[:2])
    rotation = layers.RandomRotation(0.1, **grey)
    rotation.backend.set_backend("tensorflow")
    angle = between(-36, 36, draws[0])
    zeros, side = tf.zeros(1), dict(zip(("height", "width"), IMAGE.shape, strict=False))
    matrix = rotation._compute_affine_matrix(
        *(0.5, 0.5, tf.constant([angle]), zeros, zeros, tf.ones(1), zeros, zeros),
        **side,
    )
    both = [
        (
            operations.translate(0.4, operations.BLACK),
            layers.RandomTranslation(0.4, 0.4, **options),
            {"translations": [[round(x * 24), round(y * 17)]]},
        ),
        (
            operations.shear(0.4),
            layers.RandomShear(0.4, 0.4, **grey),
            {"shear_factor": [[y, x]]},
        ),
        (operations.rotate(36.0), rotation, {"rotation_matrix": matrix}),
    ]
    for operation, layer, parameters in both:
        found, expected = applied(operation, draws), transformed(layer, parameters)
        differs = np.any(found != expected, axis=-1)
        assert np.mean(differs) < 0.02, type(layer).__name__  # ties of the rounding


def test_a_shift_is_that_of_version_0_1():
    options = {"fill_mode": "nearest", "dtype": "float32"}
    image = IMAGE
    for layer, names in (
        (layers.RandomTranslation(0.05, 0.05, **options), ["translations"]),
        (layers.RandomRotation(0.015, **options), ["rotation_matrix"]),
    ):
        layer.backend.set_backend("tensorflow")
        seeds = Seeds([7, 8] if "translations" in names else [9])
        drawn = layer.get_random_transformation(image[None], seed=seeds)
        image = transformed(layer, {name: drawn[name] for name in names}, image)
    draws = [
        np.asarray(tf.random.stateless_uniform((1,), (n, 0)))[0] for n in (7, 8, 9)
    ]
    found = applied(operations.shift(0.05, 5.4), draws)
    np.testing.assert_allclose(found, image, atol=0.02)


class Seeds(keras.random.SeedGenerator):
    def __init__(self, numbers):
        self.numbers = list(numbers)

    def next(self, ordered=True):
        return tf.constant([self.numbers.pop(0), 0], "uint32")


def test_half_of_the_images_are_mirrored():
    assert np.array_equal(applied(operations.flip, LOW), IMAGE[:, ::-1])
    assert np.array_equal(applied(operations.flip, HIGH), IMAGE)


def test_an_image_of_one_colour_keeps_its_contrast():
    flat = np.full((4, 4, 3), 30, "float32")
    assert np.array_equal(applied(operations.auto_contrast, LOW, flat), flat)


def test_one_of_applies_all_and_one_at_a_time():
    brighter = [lambda image, draws, i=i: image + i for i in range(4)]
    drawn = operations.one_of(*brighter)
    for i, draw in enumerate((0.0, 0.26, 0.74, 0.999999999)):
        assert np.allclose(applied(drawn, (draw, 0, 0)), IMAGE + i)


@pytest.mark.parametrize("name", ["shift", "photo_mixed", "cifar", "augreg_strong2"])
def test_changes_keep_range_and_shape(name):
    changes = AUGMENTATIONS[name].changes
    for change in map(tf.function, changes):  # as in a training; traced once
        for draws in RANDOM.uniform(size=(20, 3)):
            found = applied(change, draws)
            assert found.shape == IMAGE.shape
            assert found.min() >= -1e-3 and found.max() <= 255 + 1e-3
