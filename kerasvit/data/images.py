"""Images for `batches.py`: files, arrays and datasets that are read in sequence.

A dataset of items is shuffled, and cut into shards, before any image is decoded:

    for item, label in images.endless(seed, start=0, rows=Rows(64, 0, 64)):
        pixels = images.whole(item)
"""

import functools
import io
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from PIL import ExifTags, Image

from kerasvit.preprocessing import read_image

from .shards import Rows

SHUFFLE_BUFFER = 10_000  # encoded images; about 1 GB for ImageNet
# Of tf.random.experimental. A tensor would start TensorFlow before its devices are set.
SHUFFLE_KEY = np.int64(498247692)
LAST_NUMBER = tf.int64.max
ALL = Rows()  # of batches of one
JFIF, TABLE, END = b"\xff\xd8\xff\xe0", b"\xff\xdb", b"\xff\xd9"  # markers of a JPEG
JFIF_BYTES = 20  # of the first two markers


class Indexed:
    """Images with random access: files, or an array in memory.

    Args:
        items: Paths, or a uint8 array (count, height, width[, 3]).
        labels: Class indices (count,).
        names: What `subsets.py` knows the images by: relative paths or numbers; None:
            their numbers here.
    """

    def __init__(self, items, labels, names=None):
        self.items, self.labels = items, np.asarray(labels, "int32")
        self.names = np.arange(len(labels)) if names is None else names
        self.in_memory = isinstance(items, np.ndarray)
        names = [] if self.in_memory else [os.fsencode(path) for path in items]
        self.paths = tf.constant(names, tf.string)

    def __len__(self):
        return len(self.labels)

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
        return self.part(np.sort(np.argsort(position)[:count]))

    def part(self, numbers):
        """Returns the images with these numbers."""
        items, names = self.items, [self.names[i] for i in numbers]
        items = items[numbers] if self.in_memory else [items[i] for i in numbers]
        return type(self)(items, self.labels[numbers], names)

    def once(self) -> tf.data.Dataset:
        """Returns (pixels, label) of every image once, in order."""
        return _decoded(self)

    def listed(self, rows: Rows = ALL) -> tf.data.Dataset:
        """Returns (item, label) of every image once, in order, or of some rows."""
        labels = tf.constant(self.labels)

        def numbered(i):
            return rows.number(i), labels[rows.number(i)]

        return tf.data.Dataset.range(rows.among(len(self))).map(numbered)

    def endless(self, seed, start=0, rows: Rows = ALL) -> tf.data.Dataset:
        """Returns (item, label) of endless epochs, each in another order.

        Args:
            seed: Seed of the order.
            start: Number of the first batch.
            rows: The rows of each batch.
        """
        count = tf.constant(len(self), tf.int64)
        labels, seed = tf.constant(self.labels), tf.cast(seed, tf.int64)

        def batch(i):
            first = i * rows.count
            numbers = rows.number(tf.range(first, first + rows.count))
            epochs = numbers // count
            key, seeds = tf.fill([rows.count], SHUFFLE_KEY), tf.fill([rows.count], seed)
            # index_shuffle of tf.random.experimental takes one seed only.
            items = tf.raw_ops.RandomIndexShuffle(
                index=numbers % count,
                seed=tf.stack([key, seeds, epochs], axis=1),
                max_index=count - 1,
            )
            return items, tf.gather(labels, items)

        # A batch at a time takes half the time.
        return tf.data.Dataset.range(start, LAST_NUMBER).map(batch).unbatch()

    def whole(self, item):
        """Returns the pixels of an image, uint8 (height, width, 3)."""

        def pixels(i):
            return np.asarray(read_image(self.items[i]))

        image = tf.numpy_function(pixels, [item], tf.uint8, stateful=False)
        return tf.ensure_shape(image, (None, None, 3))

    def encoded(self, item):
        """Returns the content of an image's file; None for an array."""
        if self.in_memory:
            return None
        return tf.io.read_file(self.paths[item])

    @staticmethod
    def is_plain_jpeg(encoded):
        """Whether TensorFlow decodes a file to the pixels of `read_image`.

        It knows no orientation, no colours but RGB and grey, and no name of a damaged
        file: `read_image` reads those, and all formats but JPEG.
        """
        # JFIF holds RGB or grey. A table after its marker: there is no orientation.
        # Most files that were cut short do not end with the last marker.
        length = tf.strings.length(encoded)
        places = tf.stack(
            [0, tf.minimum(JFIF_BYTES, length), tf.maximum(length - 2, 0)]
        )
        markers = tf.strings.substr(encoded, places, [len(JFIF), 2, 2])
        return tf.cond(
            tf.reduce_all(markers == [JFIF, TABLE, END]),
            lambda: True,
            lambda: tf.numpy_function(_is_plain_jpeg, [encoded], tf.bool, False),
        )


class InMemory(Indexed):
    """Preprocessed images, a float32 array (count, height, width, 3)."""

    def __init__(self, items, labels, names=None):
        super().__init__(items, labels, names)
        self.pixels = tf.constant(items)

    def whole(self, item):
        """Returns the pixels of an image, float32 (height, width, 3)."""
        return self.pixels[item]


class Streamed:
    """Images that are read in sequence and shuffled in a buffer.

    A process reads all records of the dataset, and decodes those of its rows.

    Args:
        stored: `tf.data.Dataset` of (encoded image, label), in a fixed order.
        decode: Function from an encoded image to uint8 (height, width, 1 or 3).
    """

    def __init__(self, stored: tf.data.Dataset, decode: Callable):
        self.stored, self.decode = stored, decode
        count = int(stored.cardinality())
        self.count = count if count >= 0 else sum(1 for _ in stored)

    def __len__(self):
        return self.count

    def sample(self, count, seed):
        """Returns at most `count` images, drawn as in an epoch of training."""
        if count >= len(self):
            return self
        buffer = min(len(self), SHUFFLE_BUFFER)
        options = {"seed": seed, "reshuffle_each_iteration": False}
        chosen = self.stored.shuffle(buffer, **options).take(count)
        return Streamed(chosen.cache(), self.decode)

    @functools.cached_property
    def labels(self):
        """Class indices (count,), after all records are read once, without decoding."""
        batches = self.stored.map(lambda item, label: label).batch(1024)
        return np.concatenate([*batches.as_numpy_iterator()]).astype("int32")

    @property
    def names(self):
        """Numbers of the records, by which `subsets.py` knows them."""
        return range(len(self))

    def part(self, numbers):
        """Returns the records with these numbers; the others are read, not decoded."""
        mask = np.zeros(len(self), bool)
        mask[numbers] = True
        chosen = tf.constant(mask)
        stored = self.stored.enumerate().filter(lambda i, pair: chosen[i])
        stored = stored.map(lambda i, pair: pair)
        count = tf.data.experimental.assert_cardinality(len(numbers))
        return Streamed(stored.apply(count), self.decode)

    def once(self) -> tf.data.Dataset:
        """Returns (pixels, label) of every image once, in order."""
        return _decoded(self)

    def listed(self, rows: Rows = ALL) -> tf.data.Dataset:
        """Returns (item, label) of every image once, in order, or of some rows."""
        return self._of_rows(self.stored, 0, rows).apply(
            tf.data.experimental.assert_cardinality(rows.among(len(self)))
        )

    def endless(self, seed, start=0, rows: Rows = ALL) -> tf.data.Dataset:
        """Returns (item, label) of endless epochs, each in another order.

        Args:
            seed: Seed of the order.
            start: Number of the first batch.
            rows: The rows of each batch.
        """
        buffer = min(len(self), SHUFFLE_BUFFER)

        def epoch(i):
            tf.random.set_seed(1)  # of this graph, instead of the global seed
            order = {"seed": seed * 1_000_003 + i, "reshuffle_each_iteration": False}
            return self.stored.shuffle(buffer, **order)

        first = start * rows.examples
        epochs = tf.data.Dataset.range(first // len(self), LAST_NUMBER)
        stream = epochs.flat_map(epoch).skip(first % len(self))
        stream = self._of_rows(stream, first, rows)
        if rows.repeats == 1:
            return stream

        def repeated(items, labels):
            return tf.gather(items, rows.places), tf.gather(labels, rows.places)

        return stream.batch(max(rows.places) + 1).map(repeated).unbatch()

    @staticmethod
    def _of_rows(stream, first, rows):
        numbered = stream.enumerate(first).filter(lambda i, pair: rows.holds(i))
        return numbered.map(lambda i, pair: (pair[0], tf.cast(pair[1], "int32")))

    def whole(self, item):
        """Returns the pixels of an image, uint8 (height, width, 1 or 3)."""
        return self.decode(item)

    def encoded(self, item):
        """Returns the content of an image's file; None if it is no string."""
        return item if item.dtype == tf.string else None

    @staticmethod
    def is_plain_jpeg(encoded):
        """Whether TensorFlow decodes it as JPEG, as tensorflow-datasets does."""
        return tf.io.is_jpeg(encoded)


def _decoded(images):
    def pixels(item, label):
        return images.whole(item), label

    return images.listed().map(pixels, num_parallel_calls=tf.data.AUTOTUNE)


def _is_plain_jpeg(content):
    if content[:3] != JFIF[:3] or content[-2:] != END:
        return np.bool_(False)
    # Pillow's decoders raise many types of errors for damaged files, which
    # `read_image` then names.
    try:
        with Image.open(io.BytesIO(content)) as image:
            orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
            return np.bool_(image.mode in ("L", "RGB") and not 2 <= orientation <= 8)
    except Exception:
        return np.bool_(False)
