"""Labelled images that are read in sequence, as those of tensorflow-datasets."""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from kerasvit.types import Tensor

from .images import ALL, LAST_NUMBER, Images
from .shards import Rows

SHUFFLE_BUFFER = 10_000  # encoded images; about 1 GB for ImageNet


class StreamedImages(Images):
    """Images that are read in sequence and shuffled in a buffer.

    A process reads all records of the data set, and decodes those of its rows.

    Args:
        stored: `tf.data.Dataset` of (encoded image, label), in a fixed order.
        decode: Function from an encoded image to uint8 (height, width, 1 or 3).
    """

    def __init__(self, stored: tf.data.Dataset, decode: Callable) -> None:
        self.stored, self.decode = stored, decode
        count = int(stored.cardinality())
        self._count = count if count >= 0 else sum(1 for _ in stored)

    def __len__(self) -> int:
        return self._count

    def sample(self, count: int, seed: int) -> "StreamedImages":
        """Returns at most `count` images, drawn as in an epoch of training."""
        if count >= len(self):
            return self
        buffer = min(len(self), SHUFFLE_BUFFER)
        options = {"seed": seed, "reshuffle_each_iteration": False}
        chosen = self.stored.shuffle(buffer, **options).take(count)
        return StreamedImages(chosen.cache(), self.decode)

    @functools.cached_property
    def labels(self) -> np.ndarray:  # type: ignore[override]
        """Class indices (count,), after all records are read once, without decoding."""
        batches = self.stored.map(lambda item, label: label).batch(1024)
        return np.concatenate([*batches.as_numpy_iterator()]).astype("int32")

    @property
    def names(self) -> range:
        """Numbers of the records."""
        return range(len(self))

    def part(self, numbers: np.ndarray) -> "StreamedImages":
        """Returns the records with these numbers; the others are read, not decoded."""
        mask = np.zeros(len(self), bool)
        mask[numbers] = True
        chosen = tf.constant(mask)
        stored = self.stored.enumerate().filter(lambda i, pair: chosen[i])
        stored = stored.map(lambda i, pair: pair)
        count = tf.data.experimental.assert_cardinality(len(numbers))
        return StreamedImages(stored.apply(count), self.decode)

    def relabelled(self, table: np.ndarray) -> "StreamedImages":
        """Returns the records with `table[label]` instead of their labels."""
        labels = tf.constant(table)
        stored = self.stored.map(lambda item, label: (item, labels[label]))
        count = tf.data.experimental.assert_cardinality(len(self))
        return StreamedImages(stored.apply(count), self.decode)

    def listed(self, rows: Rows = ALL) -> tf.data.Dataset:
        return self._of_rows(self.stored, 0, rows).apply(
            tf.data.experimental.assert_cardinality(rows.among(len(self)))
        )

    def shuffled(
        self, seed: int, first: Tensor, rows: Rows = ALL, balanced: bool = False
    ) -> tf.data.Dataset:
        buffer = min(len(self), SHUFFLE_BUFFER)

        def epoch(i: Tensor) -> tf.data.Dataset:
            tf.random.set_seed(1)  # of this graph, instead of the global seed
            order = {"seed": seed * 1_000_003 + i, "reshuffle_each_iteration": False}
            return self.stored.shuffle(buffer, **order)

        number = first * rows.examples
        epochs = tf.data.Dataset.range(number // len(self), LAST_NUMBER)
        stream = epochs.flat_map(epoch).skip(number % len(self))
        stream = self._of_rows(stream, number, rows)
        if rows.repeats == 1:
            return stream

        def repeated(items: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            return tf.gather(items, rows.places), tf.gather(labels, rows.places)

        return stream.batch(max(rows.places) + 1).map(repeated).unbatch()

    @staticmethod
    def _of_rows(stream: tf.data.Dataset, first: Tensor, rows: Rows) -> tf.data.Dataset:
        numbered = stream.enumerate(first).filter(lambda i, pair: rows.holds(i))
        return numbered.map(lambda i, pair: (pair[0], tf.cast(pair[1], "int32")))

    def whole(self, item: Tensor) -> Tensor:
        """Returns the pixels of an image, uint8 (height, width, 1 or 3)."""
        return self.decode(item)

    def encoded(self, item: Tensor) -> Tensor | None:
        return item if item.dtype == tf.string else None

    @staticmethod
    def is_plain_jpeg(encoded: Tensor) -> Tensor:
        """Whether TensorFlow decodes it as JPEG, as tensorflow-datasets does."""
        return tf.io.is_jpeg(encoded)
