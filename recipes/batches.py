"""Images as batches for training and evaluation, by tf.data, on every backend.

    batches = training_batches(images, transform, batch_size=64, seed=0, start=100)
    batches = evaluation_batches(images, transform, batch_size=64)

A training batch depends on the seed and on its own number alone, never on what was
drawn before it: a training that was interrupted goes on with the batches it would have
had. Augmentation is Keras's layers; the rest is the transform of the model's weights.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from kerasvit import Preprocessing
from kerasvit.images import read_image

if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")  # tf.data would take all its memory

SHUFFLE_BUFFER = 10_000  # images as stored, about 1 GB of ImageNet's


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


class _SeedOf(keras.random.SeedGenerator):
    """Seeds for a layer that depend on two numbers and the count of draws alone."""

    def __init__(self, seed, number):
        self.numbers, self.draws = (seed, number), 0

    def next(self, ordered=True):
        self.draws += 1
        seed, number = (tf.cast(n, tf.uint32) for n in self.numbers)
        return tf.stack([seed * 1_000_003 + tf.cast(self.draws, tf.uint32), number])


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What changes training images at random, afresh each time they are seen.

    Args:
        area: Smallest share of the image that a random crop keeps; 1 crops nothing.
        layers: Makes Keras layers that change batches of finished size, 0 to 255.
    """

    area: float = 1.0
    layers: Callable = list


def _shift():
    layers, fill = keras.layers, {"fill_mode": "nearest", "dtype": "float32"}
    return [
        layers.RandomTranslation(0.05, 0.05, **fill),
        layers.RandomRotation(0.015, **fill),  # of a turn: 5 degrees
    ]


def _flip():
    return [keras.layers.RandomFlip("horizontal", dtype="float32")]


AUGMENTATIONS = {
    "none": Augmentation(),
    "shift": Augmentation(layers=_shift),  # keeps left and right, as writing wants
    "photo": Augmentation(area=0.05, layers=_flip),  # vit_jax/input_pipeline.py
}


def training_batches(
    images,
    transform: Preprocessing,
    *,
    batch_size: int,
    seed: int,
    start: int = 0,
    augmentation: Augmentation = AUGMENTATIONS["none"],
    normalize: bool = True,
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
    """
    whole = transform
    if augmentation.area < 1:  # the crop is random then, and not the transform's
        whole = dataclasses.replace(transform, mode="squash", crop=1.0)

    def prepared(pixels, number):
        if augmentation.area < 1:
            random = np.random.default_rng([seed, number])
            pixels = _random_crop(pixels, augmentation.area, random)
        return whole(pixels, normalize=False)

    def example(number, pair):
        image = tf.numpy_function(prepared, [pair[0], number], tf.float32)
        return tf.ensure_shape(image, (*transform.size, 3)), pair[1]

    layers = augmentation.layers()

    def batch(number, pair):
        images, labels = pair
        seeds = _SeedOf(seed, number)
        for layer in layers:
            # Called as a whole, a layer draws from a state that starts again in every
            # process. Its two halves take the seeds, and no backend but TensorFlow's.
            layer.backend.set_backend("tensorflow")
            how = layer.get_random_transformation(images, training=True, seed=seeds)
            images = layer.transform_images(images, how, training=True)
        if normalize:
            images = (images / 255.0 - transform.mean) / transform.std
        return images, labels

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
    images, transform: Preprocessing, *, batch_size: int, normalize: bool = True
) -> tf.data.Dataset:
    """Batches of (images, labels), every one once, prepared as `classify` does.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Of the model's weights.
        batch_size: Images in a batch; the last may have fewer.
        normalize: False where the model has the normalisation built in.
    """

    def prepared(pixels):
        return transform(pixels, normalize=normalize)

    def example(pixels, label):
        image = tf.numpy_function(prepared, [pixels], tf.float32, stateful=False)
        return tf.ensure_shape(image, (*transform.size, 3)), label

    examples = images.once().map(example, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def _random_crop(pixels, area, random):
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
