"""Images as batches for training and evaluation, by tf.data, on every backend.

    batches = training_batches(images, transform, batch_size=64, seed=0, start=100)
    batches = evaluation_batches(images, transform, batch_size=64)

A training batch depends on the seed and on its own number alone, never on what was
drawn before it: a training that was interrupted goes on with the batches it would have
had. `augmentations.py` changes images; the rest is the transform of the weights.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from augmentations import AUGMENTATIONS, Augmentation, Change, SeedOf, random_crop

from kerasvit import Preprocessing
from kerasvit.preprocessing.images import read_image

if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")  # tf.data would take all its memory

SHUFFLE_BUFFER = 10_000  # images as stored, about 1 GB of ImageNet's
MOST_IN_MEMORY = 2**27  # numbers of float32: 0.5 GB


class Indexed:
    """Images that can be read in any order: files, or arrays in memory.

    Args:
        items: Paths, or arrays (count, height, width[, 3]) of uint8.
        labels: Numbers of their classes.
    """

    def __init__(self, items, labels):
        self.items, self.labels = items, np.asarray(labels, "int32")

    def __len__(self):
        return len(self.labels)

    def once(self):
        """Every image and label once, in order."""
        return self._read(tf.data.Dataset.range(len(self)))

    def sample(self, count, seed):
        """At most `count` of the images, with every class in its share."""
        if count >= len(self):
            return self
        random = np.random.default_rng(seed)
        # The i-th of n images of a class comes at (i + u) / n, so that the first images
        # of this order hold all classes as they are in the whole.
        at = np.empty(len(self))
        for label in np.unique(self.labels):
            places = random.permutation(np.flatnonzero(self.labels == label))
            at[places] = (np.arange(len(places)) + random.random()) / len(places)
        chosen = np.sort(np.argsort(at)[:count])
        items = self.items
        if isinstance(items, np.ndarray):
            return type(self)(items[chosen], self.labels[chosen])
        return type(self)([items[i] for i in chosen], self.labels[chosen])

    def endless(self, seed, start=0):
        """Epoch after epoch, each in an order of its own, from example `start` on."""
        count = len(self)

        def place(i):
            return tf.random.experimental.index_shuffle(
                i % count, tf.stack([seed, i // count]), tf.constant(count - 1, "int64")
            )

        return self._read(tf.data.Dataset.range(start, tf.int64.max).map(place))

    def _read(self, places):
        labels = tf.constant(self.labels)

        def pixels(i):
            return np.asarray(read_image(self.items[i]))

        def example(i):
            image = tf.numpy_function(pixels, [i], tf.uint8, stateful=False)
            return tf.ensure_shape(image, (None, None, 3)), labels[i]

        return places.map(example, num_parallel_calls=tf.data.AUTOTUNE)


class InMemory(Indexed):
    """Images of finished size, as one array (count, height, width, 3) of float32."""

    def _read(self, places):
        pixels, labels = tf.constant(self.items), tf.constant(self.labels)
        return places.map(lambda i: (pixels[i], labels[i]))


class Streamed:
    """Images that are read one after the other, shuffled in a buffer.

    Args:
        encoded: tf.data of (image as stored, label), the same in every pass.
        decode: Makes an image (height, width, 1 or 3) of uint8 of the former.
    """

    def __init__(self, encoded: tf.data.Dataset, decode: Callable):
        self.encoded, self.decode = encoded, decode
        count = int(encoded.cardinality())
        self.count = count if count >= 0 else sum(1 for _ in encoded)

    def __len__(self):
        return self.count

    def sample(self, count, seed):
        """At most `count` of the images, drawn as in an epoch of training."""
        if count >= len(self):
            return self
        buffer = min(len(self), SHUFFLE_BUFFER)
        options = {"seed": seed, "reshuffle_each_iteration": False}
        chosen = self.encoded.shuffle(buffer, **options).take(count)
        return Streamed(chosen.cache(), self.decode)

    def once(self):
        """Every image and label once, in order."""
        return self.encoded.map(self._decoded, num_parallel_calls=tf.data.AUTOTUNE)

    def endless(self, seed, start=0):
        """Epoch after epoch, each in an order of its own, from example `start` on."""
        buffer = min(len(self), SHUFFLE_BUFFER)

        def epoch(i):
            tf.random.set_seed(1)  # of this graph: the global one would count too
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
    """Endless batches of (images, labels), from batch number `start` on.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Of the model's weights: size, kernel and normalisation are its own.
        batch_size: Images in a batch.
        seed: Of the order and of the augmentation.
        start: Number of the first batch, in a training of which this is the rest.
        augmentation: One of `AUGMENTATIONS`.
        normalize: False where the model has the normalisation built in.
        classes: How many there are, for labels as rows of so many numbers; None: they
            stay numbers, and cannot be mixed.
    """
    whole, change = transform, Change(augmentation)
    if augmentation.area < 1:  # the crop is random then, and not the transform's
        whole = dataclasses.replace(transform, mode="squash", crop=1.0)
    else:
        images = _in_memory(images, transform, False)

    def prepared(pixels, number):
        if augmentation.area < 1:
            random = np.random.default_rng([seed, number])
            pixels = random_crop(pixels, augmentation.area, random)
        return whole(pixels, normalize=False)

    def example(number, pair):
        if isinstance(images, InMemory):
            return pair
        image = tf.numpy_function(prepared, [pair[0], number], tf.float32)
        return tf.ensure_shape(image, (*transform.size, 3)), pair[1]

    def batch(number, pair):
        pixels, labels = pair
        if classes:
            labels = tf.one_hot(labels, classes)
        pixels, labels = change(pixels, labels, SeedOf(seed, number))
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
    """Batches of (images, labels), every one once, prepared as `classify` does.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Of the model's weights.
        batch_size: Images in a batch; the last may have fewer.
        normalize: False where the model has the normalisation built in.
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
    """The same prepared once, where they are arrays and few; else as they are."""
    arrays = isinstance(images, Indexed) and isinstance(images.items, np.ndarray)
    if not arrays or len(images) * np.prod(transform.size) * 3 > MOST_IN_MEMORY:
        return images
    made = [transform(pixels, normalize=normalize) for pixels in images.items]
    return InMemory(np.stack(made), images.labels)
