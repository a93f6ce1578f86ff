"""Makes batches for training and evaluation with tf.data, on every backend.

    batches = training_batches(images, transform, batch_size=64, seed=0, start=100)
    batches = evaluation_batches(images, transform, batch_size=64)

A training batch depends only on the seed and on its number, so that an interrupted
training continues with the same batches. `augmentations.py` defines random changes; all
other preprocessing is the transform of the weights.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from augmentations import AUGMENTATIONS, Augment, Augmentation, BatchSeeds, random_crop

from kerasvit import Preprocessing
from kerasvit.preprocessing.images import read_image

if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")  # else TensorFlow takes all its memory

SHUFFLE_BUFFER = 10_000  # encoded images; about 1 GB for ImageNet
MAX_IN_MEMORY = 2**27  # float32 values: 0.5 GB


class Indexed:
    """Images with random access: files, or an array in memory.

    Args:
        items: Paths, or a uint8 array (count, height, width[, 3]).
        labels: Class indices (count,).
    """

    def __init__(self, items, labels):
        self.items, self.labels = items, np.asarray(labels, "int32")

    def __len__(self):
        return len(self.labels)

    def once(self):
        """Returns every image and label once, in order."""
        return self._read(tf.data.Dataset.range(len(self)))

    def sample(self, count, seed):
        """Returns at most `count` images, stratified by class."""
        if count >= len(self):
            return self
        random = np.random.default_rng(seed)
        # The i-th of n images of a class has the position (i + u) / n, with a random u,
        # so that the classes have the same shares in any first part of this order.
        position = np.empty(len(self))
        for label in np.unique(self.labels):
            members = random.permutation(np.flatnonzero(self.labels == label))
            ranks = np.arange(len(members)) + random.random()
            position[members] = ranks / len(members)
        chosen = np.sort(np.argsort(position)[:count])
        items = self.items
        if isinstance(items, np.ndarray):
            return type(self)(items[chosen], self.labels[chosen])
        return type(self)([items[i] for i in chosen], self.labels[chosen])

    def endless(self, seed, start=0):
        """Returns endless epochs, each in another order, from example `start`."""
        count = len(self)

        def shuffled(i):
            return tf.random.experimental.index_shuffle(
                i % count, tf.stack([seed, i // count]), tf.constant(count - 1, "int64")
            )

        return self._read(tf.data.Dataset.range(start, tf.int64.max).map(shuffled))

    def _read(self, indices):
        labels = tf.constant(self.labels)

        def pixels(i):
            return np.asarray(read_image(self.items[i]))

        def example(i):
            image = tf.numpy_function(pixels, [i], tf.uint8, stateful=False)
            return tf.ensure_shape(image, (None, None, 3)), labels[i]

        return indices.map(example, num_parallel_calls=tf.data.AUTOTUNE)


class InMemory(Indexed):
    """Preprocessed images, a float32 array (count, height, width, 3)."""

    def _read(self, indices):
        pixels, labels = tf.constant(self.items), tf.constant(self.labels)
        return indices.map(lambda i: (pixels[i], labels[i]))


class Streamed:
    """Images that are read in sequence and shuffled in a buffer.

    Args:
        encoded: `tf.data.Dataset` of (encoded image, label), in a fixed order.
        decode: Function from an encoded image to uint8 (height, width, 1 or 3).
    """

    def __init__(self, encoded: tf.data.Dataset, decode: Callable):
        self.encoded, self.decode = encoded, decode
        count = int(encoded.cardinality())
        self.count = count if count >= 0 else sum(1 for _ in encoded)

    def __len__(self):
        return self.count

    def sample(self, count, seed):
        """Returns at most `count` images, drawn as in an epoch of training."""
        if count >= len(self):
            return self
        buffer = min(len(self), SHUFFLE_BUFFER)
        options = {"seed": seed, "reshuffle_each_iteration": False}
        chosen = self.encoded.shuffle(buffer, **options).take(count)
        return Streamed(chosen.cache(), self.decode)

    def once(self):
        """Returns every image and label once, in order."""
        return self.encoded.map(self._decoded, num_parallel_calls=tf.data.AUTOTUNE)

    def endless(self, seed, start=0):
        """Returns endless epochs, each in another order, from example `start`."""
        buffer = min(len(self), SHUFFLE_BUFFER)

        def epoch(i):
            tf.random.set_seed(1)  # of this graph, instead of the global seed
            order = {"seed": seed * 1_000_003 + i, "reshuffle_each_iteration": False}
            return self.encoded.shuffle(buffer, **order)

        epochs = tf.data.Dataset.range(start // len(self), tf.int64.max)
        stream = epochs.flat_map(epoch).skip(start % len(self))
        return stream.map(self._decoded, num_parallel_calls=tf.data.AUTOTUNE)

    def _decoded(self, image, label):
        return self.decode(image), tf.cast(label, "int32")


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
        transform: Transform of the model's weights.
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
    resize, augment = transform, Augment(augmentation)
    if augmentation.area < 1:  # the random crop replaces that of the transform
        resize = dataclasses.replace(transform, mode="squash", crop=1.0)
    else:
        images = _in_memory(images, transform, False)

    def prepared(pixels, number):
        if augmentation.area < 1:
            random = np.random.default_rng([seed, number])
            pixels = random_crop(pixels, augmentation.area, random)
        return resize(pixels, normalize=False)

    def example(number, pair):
        if isinstance(images, InMemory):
            return pair
        image = tf.numpy_function(prepared, [pair[0], number], tf.float32)
        return tf.ensure_shape(image, (*transform.size, 3)), pair[1]

    def batch(number, pair):
        pixels, labels = pair
        if classes:
            labels = tf.one_hot(labels, classes)
        pixels, labels = augment(pixels, labels, BatchSeeds(seed, number))
        if normalize:
            pixels = (pixels / 255.0 - transform.mean) / transform.std
        return pixels, labels

    first = start * batch_size
    examples = tf.data.Dataset.range(first, tf.int64.max)
    examples = tf.data.Dataset.zip(examples, images.endless(seed, first))
    batches = examples.map(example, tf.data.AUTOTUNE).batch(batch_size)
    numbers = tf.data.Dataset.range(start, tf.int64.max)
    return (
        tf.data.Dataset.zip(numbers, batches)
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


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

    def prepared(pixels):
        return transform(pixels, normalize=normalize)

    def example(pixels, label):
        label = tf.one_hot(label, classes) if classes else label
        if isinstance(images, InMemory):
            return pixels, label
        image = tf.numpy_function(prepared, [pixels], tf.float32, stateful=False)
        return tf.ensure_shape(image, (*transform.size, 3)), label

    examples = images.once().map(example, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


@functools.lru_cache(maxsize=8)
def _in_memory(images, transform, normalize):
    """Returns preprocessed images if they are a small array, else the same images."""
    arrays = isinstance(images, Indexed) and isinstance(images.items, np.ndarray)
    if not arrays or len(images) * np.prod(transform.size) * 3 > MAX_IN_MEMORY:
        return images
    prepared = [transform(pixels, normalize=normalize) for pixels in images.items]
    return InMemory(np.stack(prepared), images.labels)
