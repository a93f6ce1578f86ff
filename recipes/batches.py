"""Makes batches for training and evaluation with tf.data, on every backend.

    batches = training_batches(images, transform, batch_size=64, seed=0, start=100)
    batches = evaluation_batches(images, transform, batch_size=64)

A training batch depends only on the seed and on its number, so that an interrupted
training continues with the same batches. `readers.py` reads the images and
`augmentations.py` defines random changes; all other preprocessing is the transform of
the weights.
"""

import functools

import keras
import numpy as np
import tensorflow as tf
from augmentations import AUGMENTATIONS, Augmentation
from crops import random_crop
from mixing import mix_one_of
from operations import per_channel
from readers import Indexed, InMemory
from readers import Streamed as Streamed
from shards import Rows

from kerasvit import Preprocessing

if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")  # else TensorFlow takes all its memory

MAX_IN_MEMORY = 2**27  # float32 values: 0.5 GB


def training_batches(
    images,
    transform: Preprocessing,
    *,
    batch_size: int,
    seed: int,
    start: int = 0,
    augmentation: Augmentation = AUGMENTATIONS["none"],
    normalize: bool = True,
    classes: int | None = None,
) -> tf.data.Dataset:
    """Returns endless training batches (images, labels).

    Args:
        images: `Indexed` or `Streamed`.
        transform: Transform of the model's weights. A random crop replaces its crop,
            and is resized as `crops.py` says.
        batch_size: Number of images per batch.
        seed: Seed of the order and of the augmentation.
        start: Number of the first batch, for a training that continues.
        augmentation: One of `AUGMENTATIONS`.
        normalize: False if the model contains the normalisation.
        classes: Number of classes for one-hot labels; None returns class indices, which
            cannot be mixed.

    Returns:
        `tf.data.Dataset` of float32 images (batch, height, width, 3) and labels.
    """
    rows = Rows.of(batch_size, (0, 1), pairs=bool(augmentation.mixing))
    mean, std = np.float32(transform.mean), np.float32(transform.std)
    if augmentation.area == 1:
        images = _in_memory(images, transform, False)

    def example(number, item, label):
        crop_draws, draws = augmentation.draws(seed, number)
        if augmentation.area < 1:
            options = {"size": transform.size, "antialias": transform.antialias}
            image = random_crop(
                images, item, augmentation.area, draws=crop_draws, **options
            )
        else:
            image = _transformed(images, item, transform, normalize=False)
        for change, numbers in zip(augmentation.changes, draws, strict=True):
            image = change(image, numbers)
        if normalize:  # mixing does not change the result
            image = per_channel(image, 1 / (255 * std), -mean / std)
        label = tf.one_hot(label, classes) if classes else label
        return tf.ensure_shape(image, (*transform.size, 3)), label

    def mixed(number, pair):
        key = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int64), number]), 1)
        return mix_one_of(augmentation.mixing, *pair, rows, key)

    examples = images.endless(seed, start, rows).map(example, tf.data.AUTOTUNE)
    batches = examples.batch(rows.count, drop_remainder=True)
    if augmentation.mixing:
        numbers = tf.data.Dataset.range(start, tf.int64.max)
        batches = tf.data.Dataset.zip(numbers, batches).map(mixed, tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE)


def evaluation_batches(
    images,
    transform: Preprocessing,
    *,
    batch_size: int,
    normalize: bool = True,
    classes: int | None = None,
) -> tf.data.Dataset:
    """Returns batches (images, labels) with every image once.

    The preprocessing is that of `kerasvit.classify`.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Transform of the model's weights.
        batch_size: Number of images per batch; the last batch may be smaller.
        normalize: False if the model contains the normalisation.
        classes: As for `training_batches`.
    """
    images = _in_memory(images, transform, normalize)

    def example(item, label):
        label = tf.one_hot(label, classes) if classes else label
        return _transformed(images, item, transform, normalize), label

    examples = images.listed().map(example, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def _transformed(images, item, transform, normalize):
    """Returns the image of an item, float32 (height, width, 3), exactly transformed."""
    if isinstance(images, InMemory):
        return images.whole(item)

    def transformed(pixels):
        return transform(pixels, normalize=normalize)

    pixels = images.whole(item)
    image = tf.numpy_function(transformed, [pixels], tf.float32, stateful=False)
    return tf.ensure_shape(image, (*transform.size, 3))


@functools.lru_cache(maxsize=8)
def _in_memory(images, transform, normalize):
    """Returns preprocessed images if they are a small array, else the same images."""
    arrays = isinstance(images, Indexed) and isinstance(images.items, np.ndarray)
    if not arrays or len(images) * np.prod(transform.size) * 3 > MAX_IN_MEMORY:
        return images
    prepared = [transform(pixels, normalize=normalize) for pixels in images.items]
    return InMemory(np.stack(prepared), images.labels)
