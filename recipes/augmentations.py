"""What changes training images at random: Keras's layers, drawn from a batch's number.

change = Change(AUGMENTATIONS["cifar_mixed"])
images, labels = change(images, labels, SeedOf(seed, number))    # in tf.data
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What changes training images at random, afresh each time they are seen.

    Args:
        area: Smallest share of the image that a random crop keeps; 1 crops nothing.
        layers: Makes Keras layers that change batches of finished size, 0 to 255, one
            after the other. Of a list among them, one is drawn for each image.
        mixing: Makes Keras layers that mix images and their labels. One of them is
            drawn for each batch.
    """

    area: float = 1.0
    layers: Callable = list
    mixing: Callable = list


class SeedOf(keras.random.SeedGenerator):
    """Seeds for a layer that depend on two numbers and the count of draws alone."""

    def __init__(self, seed, number):
        self.numbers, self.draws = (seed, number), 0

    def next(self, ordered=True):
        self.draws += 1
        seed, number = (tf.cast(n, tf.uint32) for n in self.numbers)
        return tf.stack([seed * 1_000_003 + tf.cast(self.draws, tf.uint32), number])


class Change:
    """Applies the layers of an augmentation to a batch.

    Called as a whole, a layer of Keras draws from a state that starts again in every
    process. Its two halves take the seeds, and no backend but TensorFlow's.
    """

    def __init__(self, augmentation: Augmentation):
        self.layers, self.mixing = augmentation.layers(), augmentation.mixing()

    def __call__(self, images, labels, seeds: SeedOf):
        for layer in self.layers:
            choice = layer if isinstance(layer, list) else [layer]
            shape = (tf.shape(images)[0], 1, 1, 1)
            images = _one_of(choice, images, shape, seeds, _changed)
        if self.mixing:
            pair = images, labels
            images, labels = _one_of(self.mixing, pair, (), seeds, _mixed)
        return images, labels


def _one_of(layers, batch, shape, seeds, apply):
    """What one of the layers makes of a batch; drawn for each entry of `shape`."""
    if len(layers) == 1:
        return apply(layers[0], batch, seeds)
    seed = tf.cast(seeds.next(), tf.int32)
    drawn = tf.random.stateless_uniform(shape, seed, maxval=len(layers), dtype=tf.int32)
    result = batch
    for i, layer in enumerate(layers):
        made = apply(layer, batch, seeds)
        result = tf.nest.map_structure(
            lambda new, old, i=i: tf.where(drawn == i, new, old), made, result
        )
    return result


def _changed(layer, images, seeds):
    layer.backend.set_backend("tensorflow")
    how = layer.get_random_transformation(images, training=True, seed=seeds)
    return layer.transform_images(images, how, training=True)


def _mixed(layer, pair, seeds):
    images, labels = pair
    layer.backend.set_backend("tensorflow")
    how = layer.get_random_transformation(images, training=True, seed=seeds)
    return (
        layer.transform_images(images, how, training=True),
        layer.transform_labels(labels, how, training=True),
    )


def random_crop(pixels, area, random):
    """A crop of `area` to all of the image, aspect 3:4 to 4:3 (Szegedy et al. 2015)."""
    height, width = pixels.shape[:2]
    for _ in range(10):
        kept = height * width * random.uniform(area, 1)
        aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        h, w = round((kept / aspect) ** 0.5), round((kept * aspect) ** 0.5)
        if 0 < h <= height and 0 < w <= width:
            y, x = random.integers(height - h + 1), random.integers(width - w + 1)
            return pixels[y : y + h, x : x + w]
    return pixels


FLOAT = {"dtype": "float32"}  # whatever the policy of the model is


def _shift():
    layers, fill = keras.layers, {"fill_mode": "nearest", **FLOAT}
    return [
        layers.RandomTranslation(0.05, 0.05, **fill),
        layers.RandomRotation(0.015, **fill),  # of a turn: 5 degrees
    ]


def _flip():
    return [keras.layers.RandomFlip("horizontal", **FLOAT)]


def _cifar():
    # By up to 4 of 32 whole pixels; what comes in is black.
    options = {"fill_mode": "constant", "interpolation": "nearest", **FLOAT}
    return [*_flip(), keras.layers.RandomTranslation(0.125, 0.125, **options)]


def _rand_augment(magnitude):
    """Twice one of ten changes, each up to `magnitude` tenths of its usual most.

    Cubuk et al. 2020, arXiv 1909.13719, as near as Keras's layers come. Each image has
    changes of its own, where keras.layers.RandAugment draws one for the whole batch.
    Equalization is left out: it takes as long as all others together.
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
    "shift": Augmentation(layers=_shift),  # keeps left and right, as writing wants
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
