"""Random augmentations of training images with Keras layers, seeded per batch.

augment = Augment(AUGMENTATIONS["cifar_mixed"])
images, labels = augment(images, labels, BatchSeeds(seed, number))    # in tf.data
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of training images.

    Args:
        area: Smallest share of the image's area that a random crop keeps, in (0, 1]; 1
            disables the crop.
        layers: Function that returns Keras layers, applied in order to batches of the
            model's image size with values from 0 to 255. If an element is a list of
            layers, one of them is drawn for each image.
        mixing: Function that returns Keras layers that mix images and labels. One of
            them is drawn for each batch.
    """

    area: float = 1.0
    layers: Callable = list
    mixing: Callable = list


class BatchSeeds(keras.random.SeedGenerator):
    """Seed generator that depends only on two numbers and the count of its draws."""

    def __init__(self, seed, number):
        self.numbers, self.draws = (seed, number), 0

    def next(self, ordered=True):
        self.draws += 1
        seed, number = (tf.cast(n, tf.uint32) for n in self.numbers)
        return tf.stack([seed * 1_000_003 + tf.cast(self.draws, tf.uint32), number])


class Augment:
    """Applies the layers of an augmentation to a batch.

    A Keras layer called as a whole draws from a state that starts anew in every
    process. Its methods `get_random_transformation` and `transform_images` take seeds;
    they run on TensorFlow's backend, whatever the backend of the model.
    """

    def __init__(self, augmentation: Augmentation):
        self.layers, self.mixing = augmentation.layers(), augmentation.mixing()

    def __call__(self, images, labels, seeds: BatchSeeds):
        for layer in self.layers:
            choice = layer if isinstance(layer, list) else [layer]
            shape = (tf.shape(images)[0], 1, 1, 1)
            images = _apply_one(choice, images, shape, seeds, _transform)
        if self.mixing:
            pair = images, labels
            images, labels = _apply_one(self.mixing, pair, (), seeds, _mix)
        return images, labels


def _apply_one(layers, batch, shape, seeds, apply):
    """Applies one of the layers, drawn for each entry of `shape`, to a batch."""
    if len(layers) == 1:
        return apply(layers[0], batch, seeds)
    seed = tf.cast(seeds.next(), tf.int32)
    drawn = tf.random.stateless_uniform(shape, seed, maxval=len(layers), dtype=tf.int32)
    result = batch
    for i, layer in enumerate(layers):
        changed = apply(layer, batch, seeds)
        result = tf.nest.map_structure(
            lambda new, old, i=i: tf.where(drawn == i, new, old), changed, result
        )
    return result


def _transform(layer, images, seeds):
    layer.backend.set_backend("tensorflow")
    parameters = layer.get_random_transformation(images, training=True, seed=seeds)
    return layer.transform_images(images, parameters, training=True)


def _mix(layer, pair, seeds):
    images, labels = pair
    layer.backend.set_backend("tensorflow")
    parameters = layer.get_random_transformation(images, training=True, seed=seeds)
    return (
        layer.transform_images(images, parameters, training=True),
        layer.transform_labels(labels, parameters, training=True),
    )


def random_crop(pixels, area, random):
    """Returns a random crop with an aspect ratio of 3:4 to 4:3 (Szegedy et al. 2015).

    Args:
        pixels: Array (height, width, channels).
        area: Smallest share of the image's area in the crop.
        random: `numpy.random.Generator`.
    """
    height, width = pixels.shape[:2]
    for _ in range(10):
        target = height * width * random.uniform(area, 1)
        aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        h, w = round((target / aspect) ** 0.5), round((target * aspect) ** 0.5)
        if 0 < h <= height and 0 < w <= width:
            y, x = random.integers(height - h + 1), random.integers(width - w + 1)
            return pixels[y : y + h, x : x + w]
    return pixels


FLOAT = {"dtype": "float32"}  # independent of the model's dtype policy


def _shift():
    layers, fill = keras.layers, {"fill_mode": "nearest", **FLOAT}
    return [
        layers.RandomTranslation(0.05, 0.05, **fill),
        layers.RandomRotation(0.015, **fill),  # fraction of a turn: 5 degrees
    ]


def _flip():
    return [keras.layers.RandomFlip("horizontal", **FLOAT)]


def _cifar():
    # Shifts by up to 4 of 32 pixels; new pixels are black.
    options = {"fill_mode": "constant", "interpolation": "nearest", **FLOAT}
    return [*_flip(), keras.layers.RandomTranslation(0.125, 0.125, **options)]


def _rand_augment(magnitude):
    """Returns RandAugment as two draws from ten Keras layers.

    Each layer's strength is `magnitude` tenths of its maximum. The layers approximate
    Cubuk et al. 2020, arXiv 1909.13719. Changes are drawn per image;
    keras.layers.RandAugment draws one per batch. Equalization is omitted because it
    takes as long as all others together.
    """
    layers, strength = keras.layers, magnitude / 10
    grey = {"fill_mode": "constant", "fill_value": 128, **FLOAT}
    value = {"value_range": (0, 255), **FLOAT}
    color = min(0.9 * strength, 1)

    def choice():
        return [
            layers.RandomShear(0.3 * strength, 0.3 * strength, **grey),
            layers.RandomTranslation(0.45 * strength, 0.45 * strength, **grey),
            layers.RandomRotation(30 / 360 * strength, **grey),
            layers.RandomBrightness(color, **value),
            layers.RandomContrast(color, **value),
            layers.RandomColorDegeneration(color, **value),
            layers.RandomSharpness(color, **value),
            layers.RandomPosterization(4, **value),
            layers.Solarization(threshold_factor=color, **value),
            layers.AutoContrast(**value),
        ]

    return [choice(), choice()]


def _mix_up(alpha):
    return keras.layers.MixUp(alpha, **FLOAT)


def _cut_mix(alpha):
    return keras.layers.CutMix((alpha, alpha), **FLOAT)


AUGMENTATIONS = {
    "none": Augmentation(),
    "shift": Augmentation(layers=_shift),  # no flips, so that text stays readable
    "photo": Augmentation(area=0.05, layers=_flip),  # vit_jax/input_pipeline.py
    "photo_mixed": Augmentation(  # big_vision configs/mlp_mixer_i1k.py
        area=0.05,
        layers=lambda: [*_flip(), *_rand_augment(15)],
        mixing=lambda: [_mix_up(0.5)],
    ),
    "cifar": Augmentation(layers=_cifar),
    "cifar_mixed": Augmentation(  # xxxnell/how-do-vits-work configs/cifar100_vit.yaml
        layers=lambda: [*_cifar(), *_rand_augment(9)],
        mixing=lambda: [_mix_up(1.0), _cut_mix(0.8)],
    ),
}
