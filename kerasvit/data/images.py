"""Labelled images: files, arrays in memory, and data that are read in sequence.

A data set of items is shuffled, and cut into shards, before any image is decoded:

    for item, label in images.shuffled(seed=0, first=0, rows=Rows(64, 0, 64)):
        pixels = images.whole(item)
"""

import abc
import contextlib
import copy
import functools
import io
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from PIL import ExifTags, Image

from kerasvit.arguments import ArgumentError, integer
from kerasvit.preprocessing import Preprocessing, read_bands, read_image
from kerasvit.types import Tensor

from .shards import Rows

if keras.backend.backend() != "tensorflow":  # else TensorFlow takes all its memory
    with contextlib.suppress(RuntimeError):  # it is in use already
        tf.config.set_visible_devices([], "GPU")

# Of tf.random.experimental. A tensor would start TensorFlow before its devices are set.
SHUFFLE_KEY = np.int64(498247692)
LAST_NUMBER = tf.int64.max
ALL = Rows()  # of batches of one
JFIF, TABLE, END = b"\xff\xd8\xff\xe0", b"\xff\xdb", b"\xff\xd9"  # markers of a JPEG
JFIF_BYTES = 20  # of the first two markers
MAX_IN_MEMORY = 2**27  # float32 values: 0.5 GB


class Images(abc.ABC):
    """Labelled images in a fixed order.

    Attributes:
        labels: Class indices, int32 (count,); or, of images that may have several, 0
            and 1 (count, classes).
        names: What a share of the images knows them by: relative paths, or numbers.
        channels: Number of channels.
        value_range: As for `Preprocessing`.
    """

    labels: np.ndarray
    names: Any
    channels: int = 3
    value_range: tuple[float, float] | None = None

    @property
    def is_rgb(self) -> bool:
        """Whether images are read as colours of 8 bits."""
        return self.channels == 3 and self.value_range is None

    @property
    def has_several_labels(self) -> bool:
        """Whether an image may have several labels, or none."""
        return self.labels.ndim == 2

    def batches(
        self,
        model: Any,
        batch_size: int,
        *,
        classes: int | None = None,
        normalize: bool | None = None,
        shard: tuple[int, int] = (0, 1),
        pad: bool = False,
    ) -> tf.data.Dataset:
        """Returns batches with every image once, in order, prepared as by `classify`.

        Args:
            model: A model of kerasvit or a trainer of one, for its transform and
                whether it normalises itself; or a `Preprocessing`.
            batch_size: Number of images per batch, of all processes together. The last
                batch may be smaller without `pad`.
            classes: Number of classes for one-hot labels; None: class indices. Several
                labels are always 0 and 1, float32 (rows, classes).
            normalize: False: values 0 to 255, for another model that normalises
                itself. None: as the model needs; with a `Preprocessing`, True.
            shard: (i, n): yields rows i × b / n to (i + 1) × b / n of each batch of b,
                for process i of n.
            pad: Fills the last batch, so that devices can divide it, and yields
                weights. Several processes always do, and have the same number of
                batches.

        Returns:
            Batches (images, labels[, weights]) of float32 images (rows, height, width,
            C). The weights are 0 for grey images that fill the last batch, and the same
            number for all others, so large that their mean over all batches is 1: Keras
            divides a weighted loss by the size of the batch. The loss of `evaluate` is
            then the mean over the images, as are the `weighted_metrics` of `compile`;
            its `metrics` would count the others.

        Raises:
            ValueError: `batch_size` is not a multiple of n; an argument is out of its
                range; `model` is neither of these.
        """
        images, transform, normalize = self.fitted(model, normalize)
        rows = Rows.of(integer("batch_size", batch_size, 1), shard)
        count = len(self)
        images = images.in_memory(transform, normalize)
        pad = pad or shard[1] > 1
        size = -(-count // batch_size) * batch_size  # of all batches, filled

        def example(item: Tensor, label: Tensor) -> tuple[Tensor, ...]:
            image = images.transformed(item, transform, normalize)
            weight = (tf.constant(size / count, tf.float32),) if pad else ()
            return image, label_of(label, classes), *weight

        examples = images.listed(rows).map(example, num_parallel_calls=tf.data.AUTOTUNE)
        if pad:
            shape = (*transform.size, self.channels)
            grey = tf.fill(shape, 0.0 if normalize else 127.5)
            label = label_of(tf.zeros(self.labels.shape[1:], tf.int32), classes)
            fill = tf.data.Dataset.from_tensors((grey, label, 0.0))
            missing = size * rows.count // batch_size - rows.among(count)
            examples = examples.concatenate(fill.repeat(missing))
        batches = examples.batch(rows.count, drop_remainder=pad)
        return batches.prefetch(tf.data.AUTOTUNE)

    def fitted(
        self, model: Any, normalize: bool | None
    ) -> tuple["Images", Preprocessing, bool]:
        """Returns (the images as a model reads them, its transform, normalize).

        Args:
            model, normalize: As for `batches`.

        Raises:
            ArgumentError: The model takes another number of channels.
        """
        transform, normalize = transform_of(model, normalize)
        if transform.channels != self.channels:
            raise ArgumentError(
                f"`model` takes images with {transform.channels} channels. These are "
                f"read with {self.channels}. State the number at both, such as "
                "`kerasvit.data.from_folder(path, channels=4)` and "
                "`kerasvit.ViTB16(channels=4)` (--channels of finetune.py).",
                "model",
            )
        images = self
        if transform.value_range != self.value_range:
            images = copy.copy(self)
            images.value_range = transform.value_range
        return images, transform, normalize

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of images."""

    @abc.abstractmethod
    def sample(self, count: int, seed: int) -> "Images":
        """Returns at most `count` images, drawn at random."""

    @abc.abstractmethod
    def part(self, numbers: np.ndarray) -> "Images":
        """Returns the images with these numbers, in ascending order."""

    @abc.abstractmethod
    def relabelled(self, table: np.ndarray) -> "Images":
        """Returns the images with `table[label]` instead of their labels.

        Args:
            table: New class indices. Of several labels, those below 0 are left out.
        """

    @abc.abstractmethod
    def listed(self, rows: Rows = ALL) -> tf.data.Dataset:
        """Returns (item, label) of every image once, in order, or of some rows."""

    @abc.abstractmethod
    def shuffled(
        self, seed: int, first: Tensor, rows: Rows = ALL, balanced: bool = False
    ) -> tf.data.Dataset:
        """Returns (item, label) of endless epochs, each in another order.

        Args:
            seed: Seed of the order.
            first: Number of the first batch, int64.
            rows: The rows of each batch.
            balanced: Whether classes take turns, each with its images in an order of
                its own: rare ones have theirs more often. Only for `IndexedImages` with
                one label each.
        """

    @abc.abstractmethod
    def whole(self, item: Tensor) -> Tensor:
        """Returns the pixels of an image, (height, width, channels).

        They are uint8, or float32 if the image has not three channels.
        """

    @abc.abstractmethod
    def encoded(self, item: Tensor) -> Tensor | None:
        """Returns the content of an image's file; None if there is none."""

    @staticmethod
    @abc.abstractmethod
    def is_plain_jpeg(encoded: Tensor) -> Tensor:
        """Whether TensorFlow decodes a file to the pixels of `whole`."""

    def once(self) -> tf.data.Dataset:
        """Returns (pixels, label) of every image once, in order."""

        def pixels(item: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            return self.whole(item), label

        return self.listed().map(pixels, num_parallel_calls=tf.data.AUTOTUNE)

    def transformed(
        self, item: Tensor, transform: Preprocessing, normalize: bool
    ) -> Tensor:
        """Returns an image as `classify` prepares it, float32 (height, width, 3)."""

        def exact(pixels: np.ndarray) -> np.ndarray:
            return transform(pixels, normalize=normalize)

        pixels = self.whole(item)
        image = tf.numpy_function(exact, [pixels], tf.float32, stateful=False)
        return tf.ensure_shape(image, (*transform.size, self.channels))

    def in_memory(self, transform: Preprocessing, normalize: bool) -> "Images":
        """Returns the images transformed once, if they are a small array; else self."""
        return self


class IndexedImages(Images):
    """Images with random access: files, or an array in memory.

    Args:
        items: Paths, or an array (count, height, width[, channels]), of uint8 if these
            are three.
        labels: As for `Images`.
        names: As for `Images`; None: their numbers here.
        channels: Number of channels.
    """

    def __init__(
        self, items: Any, labels: Any, names: Any = None, channels: int = 3
    ) -> None:
        several = np.ndim(labels) == 2
        self.items, self.labels = items, np.asarray(labels, "u1" if several else "i4")
        self.channels = channels
        self.names = np.arange(len(labels)) if names is None else names
        self.is_array = isinstance(items, np.ndarray)
        files = [] if self.is_array else [os.fsencode(path) for path in items]
        self._paths = tf.constant(files, tf.string)

    def __len__(self) -> int:
        return len(self.labels)

    def sample(self, count: int, seed: int) -> "IndexedImages":
        """Returns at most `count` images, stratified by class if each has one."""
        if count >= len(self):
            return self
        random = np.random.default_rng(seed)
        if self.has_several_labels:
            return self.part(np.sort(random.permutation(len(self))[:count]))
        # The i-th of n images of a class has the position (i + u) / n, with a random u,
        # so that the classes have the same shares in any first part of this order.
        position = np.empty(len(self))
        for label in np.unique(self.labels):
            members = random.permutation(np.flatnonzero(self.labels == label))
            ranks = np.arange(len(members)) + random.random()
            position[members] = ranks / len(members)
        return self.part(np.sort(np.argsort(position)[:count]))

    def part(self, numbers: np.ndarray) -> "IndexedImages":
        items, names = self.items, [self.names[i] for i in numbers]
        items = items[numbers] if self.is_array else [items[i] for i in numbers]
        return type(self)(items, self.labels[numbers], names, self.channels)

    def relabelled(self, table: np.ndarray) -> "IndexedImages":
        if self.has_several_labels:
            labels = self.labels[:, np.argsort(table)[np.count_nonzero(table < 0) :]]
        else:
            labels = table[self.labels]
        return type(self)(self.items, labels, self.names, self.channels)

    def fitted(
        self, model: Any, normalize: bool | None
    ) -> tuple[Images, Preprocessing, bool]:
        found = super().fitted(model, normalize)
        if len(self) and not found[0].is_rgb:
            # The type of its values may need a range: an error here is not one of
            # TensorFlow's graph.
            read_bands(self.items[0], self.channels, found[0].value_range)
        return found

    def listed(self, rows: Rows = ALL) -> tf.data.Dataset:
        labels = tf.constant(self.labels)

        def numbered(i: Tensor) -> tuple[Tensor, Tensor]:
            return rows.number(i), labels[rows.number(i)]

        return tf.data.Dataset.range(rows.among(len(self))).map(numbered)

    def shuffled(
        self, seed: int, first: Tensor, rows: Rows = ALL, balanced: bool = False
    ) -> tf.data.Dataset:
        labels, seed = tf.constant(self.labels), tf.cast(seed, tf.int64)
        chosen = self._in_turns(seed) if balanced else self._all_once(seed)

        def batch(i: Tensor) -> tuple[Tensor, Tensor]:
            items = chosen(rows.number(tf.range(i * rows.count, (i + 1) * rows.count)))
            return items, tf.gather(labels, items)

        # A batch at a time takes half the time.
        return tf.data.Dataset.range(first, LAST_NUMBER).map(batch).unbatch()

    def _all_once(self, seed: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns the function from numbers of rows to images, each once an epoch."""
        count = tf.constant(len(self), tf.int64)
        return lambda numbers: _shuffled(numbers, count, SHUFFLE_KEY, seed)

    def _in_turns(self, seed: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns the function from numbers of rows to images of classes in turns."""
        present, counts = np.unique(self.labels, return_counts=True)
        members = tf.constant(np.argsort(self.labels, kind="stable"), tf.int64)
        begins = tf.constant(np.cumsum(counts) - counts, tf.int64)
        sizes, classes = (
            tf.constant(counts, tf.int64),
            tf.constant(len(present), tf.int64),
        )

        def chosen(numbers: Tensor) -> Tensor:
            # Each class once in a round, which is the number of its draw.
            turn = _shuffled(numbers, classes, SHUFFLE_KEY + 1, seed)
            size, round_ = tf.gather(sizes, turn), numbers // classes
            place = _shuffled(round_, size, SHUFFLE_KEY + 2 + turn, seed)
            return tf.gather(members, tf.gather(begins, turn) + place)

        return chosen

    def whole(self, item: Tensor) -> Tensor:
        def pixels(i: int) -> np.ndarray:
            if self.is_rgb:
                return np.asarray(read_image(self.items[i]))
            return read_bands(self.items[i], self.channels, self.value_range)

        dtype = tf.uint8 if self.is_rgb else tf.float32
        image = tf.numpy_function(pixels, [item], dtype, stateful=False)
        return tf.ensure_shape(image, (None, None, self.channels))

    def transformed(
        self, item: Tensor, transform: Preprocessing, normalize: bool
    ) -> Tensor:
        if self.is_rgb:
            return super().transformed(item, transform, normalize)

        def exact(i: int) -> np.ndarray:
            return transform(self.items[i], normalize=normalize)

        image = tf.numpy_function(exact, [item], tf.float32, stateful=False)
        return tf.ensure_shape(image, (*transform.size, self.channels))

    def encoded(self, item: Tensor) -> Tensor | None:
        if self.is_array or not self.is_rgb:
            return None
        return tf.io.read_file(self._paths[item])

    @staticmethod
    def is_plain_jpeg(encoded: Tensor) -> Tensor:
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

    def in_memory(self, transform: Preprocessing, normalize: bool) -> Images:
        values = len(self) * np.prod(transform.size) * self.channels
        if not self.is_array or values > MAX_IN_MEMORY:
            return self
        return _in_memory(self, transform, normalize)


class TransformedImages(IndexedImages):
    """Images that are transformed already: float32 (count, height, width, C)."""

    def __init__(
        self, items: np.ndarray, labels: Any, names: Any = None, channels: int = 3
    ) -> None:
        super().__init__(items, labels, names, channels)
        self._pixels = tf.constant(items)

    def whole(self, item: Tensor) -> Tensor:
        """Returns the pixels of an image, float32 (height, width, C)."""
        return self._pixels[item]

    def transformed(
        self, item: Tensor, transform: Preprocessing, normalize: bool
    ) -> Tensor:
        return self.whole(item)

    def in_memory(self, transform: Preprocessing, normalize: bool) -> Images:
        return self


def _shuffled(numbers: Tensor, count: Tensor, key: Any, seed: Tensor) -> Tensor:
    """Returns the place of each number in the order of its epoch, int64.

    Args:
        numbers: Numbers over all epochs of `count` places, int64 (rows,).
        count: Number of places, or one of each row.
        key: Another one gives another order, or one of each row.
        seed: Seed of the orders.
    """
    like = tf.zeros_like(numbers)
    # index_shuffle of tf.random.experimental takes one seed only.
    return tf.raw_ops.RandomIndexShuffle(
        index=numbers % count,
        seed=tf.stack([like + key, like + seed, numbers // count], axis=1),
        max_index=count - 1,
    )


def label_of(label: Tensor, classes: int | None) -> Tensor:
    """Returns the label of an image for a batch.

    Args:
        label: Class index, or 0 and 1 (classes,).
        classes: As for `Images.batches`.
    """
    if label.shape.rank:
        return tf.cast(label, tf.float32)
    return tf.one_hot(label, classes) if classes else label


def transform_of(
    model: Any, normalize: bool | None = None
) -> tuple[Preprocessing, bool]:
    """Returns the transform of a model, and whether its images must be normalised.

    Args:
        model, normalize: As for `Images.batches`.

    Raises:
        ArgumentError: It is none of these.
    """
    if isinstance(model, Preprocessing):
        return model, normalize is not False
    inner = model
    while not hasattr(inner, "preprocessing") and hasattr(inner, "model"):
        inner = inner.model  # of a trainer
    transform, record = (
        getattr(inner, name, None) for name in ("preprocessing", "record")
    )
    if not isinstance(transform, Preprocessing) or not isinstance(record, dict):
        raise ArgumentError(
            "`model` must be a model of kerasvit, a trainer of one, or a "
            "`kerasvit.Preprocessing`, which suits any other model. Received: "
            f"{model!r:.200}.",
            "model",
        )
    if normalize is None:
        normalize = not record["kwargs"].get("normalization")
    return transform, normalize


@functools.lru_cache(maxsize=8)
def _in_memory(
    images: IndexedImages, transform: Preprocessing, normalize: bool
) -> TransformedImages:
    found = [transform(pixels, normalize=normalize) for pixels in images.items]
    made = np.stack(found)
    return TransformedImages(made, images.labels, images.names, images.channels)


def _is_plain_jpeg(content: bytes) -> np.bool_:
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
