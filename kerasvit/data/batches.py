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

from kerasvit.preprocessing import Preprocessing

from .augmentations import AUGMENTATIONS, Augmentation
from .crops import crop_of_resized, random_crop
from .erasing import erase
from .images import Indexed, InMemory
from .images import Streamed as Streamed
from .mixing import mix_one_of
from .operations import per_channel
from .shards import Rows

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
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns endless training batches (images, labels), or the rows of a process.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Transform of the model's weights. A random crop replaces its crop,
            and is resized as `crops.py` says.
        batch_size: Number of images per batch, of all processes together.
        seed: Seed of the order and of the augmentation.
        start: Number of the first batch, for a training that continues.
        augmentation: One of `AUGMENTATIONS`, or another.
        normalize: False if the model contains the normalisation.
        classes: Number of classes for one-hot labels; None returns class indices, which
            cannot be mixed.
        shard: (i, n): yields rows i × b / n to (i + 1) × b / n of each batch of b, for
            process i of n. The n processes together yield the batches of one. No other
            image is decoded, except, to mix an odd number of rows, one at each end.

    Returns:
        `tf.data.Dataset` of float32 images (rows, height, width, 3) and labels.

    Raises:
        ValueError: `batch_size` is not a multiple of n.
    """
    mixing, repeats = augmentation.mixing, augmentation.repeats
    rows = Rows.of(batch_size, shard, pairs=bool(mixing), repeats=repeats)
    mean, std = np.float32(transform.mean), np.float32(transform.std)
    larger, changes = augmentation.larger(transform.size), augmentation.changes
    sizes = {"size": transform.size, "antialias": transform.antialias}
    if augmentation.area == 1 and not larger:
        images = _in_memory(images, transform, False)

    def draws(number):
        seeds, draws = augmentation.draws(seed, number, batch_size)
        return seeds[rows.read], draws[rows.read]

    def example(pair, drawn):
        (item, label), (own_seed, draws) = pair, drawn
        if larger:
            image = crop_of_resized(images, item, larger, seed=own_seed, **sizes)
        elif augmentation.area < 1:
            area = augmentation.area
            image = random_crop(images, item, area, seed=own_seed, **sizes)
        else:
            image = _transformed(images, item, transform, normalize=False)
        for i, change in enumerate(changes):
            image = change(image, draws[i])
        if augmentation.erasing:
            image = erase(image, augmentation.erasing, own_seed, mean, std)
        if normalize:  # mixing does not change the result
            image = per_channel(image, 1 / (255 * std), -mean / std)
        label = tf.one_hot(label, classes) if classes else label
        return tf.ensure_shape(image, (*transform.size, 3)), label

    def mixed(number, pair):
        key = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int64), number]), 1)
        return mix_one_of(mixing, *pair, rows, key)

    numbers = tf.data.Dataset.range(start, tf.int64.max)
    examples = images.endless(seed, start, rows)
    examples = tf.data.Dataset.zip(examples, numbers.map(draws).unbatch())
    batches = examples.map(example, tf.data.AUTOTUNE)
    batches = batches.batch(rows.count, drop_remainder=True)
    if mixing:
        batches = tf.data.Dataset.zip(numbers, batches).map(mixed, tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE)


def evaluation_batches(
    images,
    transform: Preprocessing,
    *,
    batch_size: int,
    normalize: bool = True,
    classes: int | None = None,
    shard: tuple[int, int] = (0, 1),
    pad: bool = False,
) -> tf.data.Dataset:
    """Returns batches (images, labels[, weights]) with every image once.

    The preprocessing is that of `kerasvit.classify`.

    Args:
        images: `Indexed` or `Streamed`.
        transform: Transform of the model's weights.
        batch_size: Number of images per batch, of all processes together. The last
            batch may be smaller without `pad`.
        normalize: False if the model contains the normalisation.
        classes: As for `training_batches`.
        shard: (i, n): yields the rows of process i of n, as `training_batches`.
        pad: Fills the last batch, so that devices can divide it, and yields weights.
            Several processes always do, and have the same number of batches.

    Returns:
        `tf.data.Dataset`. The weights are 0 for grey images that fill the last batch,
        and the same number for all others, so large that their mean over all batches
        is 1: Keras divides a weighted loss by the size of the batch. The loss of
        `evaluate` is then the mean over the images, as are the `weighted_metrics` of
        `compile`; its `metrics` would count the others.

    Raises:
        ValueError: `batch_size` is not a multiple of n.
    """
    rows, count = Rows.of(batch_size, shard), len(images)
    images = _in_memory(images, transform, normalize)
    pad = pad or shard[1] > 1
    size = -(-count // batch_size) * batch_size  # of all batches, when they are full

    def labelled(label):
        return tf.one_hot(label, classes) if classes else label

    def example(item, label):
        image = _transformed(images, item, transform, normalize)
        weight = (tf.constant(size / count, tf.float32),) if pad else ()
        return image, labelled(label), *weight

    examples = images.listed(rows).map(example, num_parallel_calls=tf.data.AUTOTUNE)
    if pad:
        grey = (
            tf.zeros((*transform.size, 3))
            if normalize
            else tf.fill((*transform.size, 3), 127.5)
        )
        fill = tf.data.Dataset.from_tensors((grey, labelled(tf.constant(0)), 0.0))
        missing = size * rows.count // batch_size - rows.among(count)
        examples = examples.concatenate(fill.repeat(missing))
    batches = examples.batch(rows.count, drop_remainder=pad)
    return batches.prefetch(tf.data.AUTOTUNE)


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
