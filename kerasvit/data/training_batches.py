"""Batches for training: shuffled, changed at random, and known by their number.

    train = training_batches(images, model, batch_size=64, augment="photo", seed=0)
    model.fit(train, epochs=4)
    train.start_at(100)  # the next iteration begins with batch 100 of the training

A batch depends only on the seed and on its number, so that an interrupted training
continues with the same batches.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kerasvit.arguments import ArgumentError, integer
from kerasvit.preprocessing import Preprocessing
from kerasvit.types import Tensor

from . import operations
from .augmentations import Augmentation, find_augmentation
from .crops import crop_of_resized, random_crop
from .images import Images, IndexedImages, label_of
from .mixing import mix_one_of
from .shards import Rows

log = logging.getLogger("kerasvit")


class TrainingBatches(tf.data.Dataset):
    """A `tf.data.Dataset` whose k-th iteration yields the batches of epoch k.

    `len` is the number of batches in an epoch, L: the number of images divided by that
    of a batch, rounded, or that of `with_epochs_of`. All batches are full: the images
    that do not fill the last one of an epoch are the first of the next, and none is
    left out.

    An iteration begins where the last one ended that yielded its last batch. One that
    was left before, as Keras and TensorFlow do to look at a batch, counts for nothing.
    Transformed data sets, such as `train.map(f)`, keep all this but the `len`.

    Args:
        make: Function that returns batches (images, labels, marks) for a
            `tf.data.Dataset` of one (number of `Position.set`, first batch, last batch
            and one), int64 (3,). A mark, of a row, is the first of these and the number
            of the batch, int64 (2,).
        length: L.
    """

    def __init__(
        self, make: Callable[[tf.data.Dataset], tf.data.Dataset], length: int
    ) -> None:
        self._make, self._position = make, Position(length)

        def begin(_: Tensor) -> Tensor:
            mark = tf.numpy_function(self._position.begin, [], tf.int64)
            return tf.ensure_shape(mark, (3,))

        def counted(x: Tensor, y: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
            done = tf.numpy_function(self._position.finish, [marks[0]], tf.bool)
            with tf.control_dependencies([done]):
                return x, tf.identity(y)

        batches = make(tf.data.Dataset.range(1).map(begin)).map(counted)
        options = tf.data.Options()
        # A batch counts when it is asked for, not when it is read ahead.
        options.experimental_optimization.inject_prefetch = False
        self._batches = batches.with_options(options)
        super().__init__(tf.data.experimental.to_variant(self._batches))

    def with_epochs_of(self, count: int) -> "TrainingBatches":
        """Returns the same batches, in epochs of another number of batches.

        Args:
            count: Number of batches in an epoch, such as those between two validations
                of a training that is counted in steps.

        Raises:
            ArgumentError: `count` is not a whole number of at least 1.
        """
        return TrainingBatches(self._make, integer("count", count, 1))

    def start_at(self, number: int) -> None:
        """Lets the next iteration begin with a batch of the training.

        It yields the rest of the epoch number // L, and those after it whole epochs.
        Iterators that were used before do not change, and have no effect on others
        any more. Keras warns in such an epoch that the data ended early.

        Args:
            number: Number of the batch, counted from 0 over all epochs.

        Raises:
            ArgumentError: `number` is negative or not a whole number.
        """
        self._position.set(integer("number", number, 0))

    def cardinality(self) -> Tensor:
        """Returns the number of batches in an epoch, int64."""
        return tf.constant(self._position.length, tf.int64)

    @property
    def element_spec(self) -> Any:
        """Shapes and types of a batch."""
        return self._batches.element_spec

    def _inputs(self) -> list:
        return [self._batches]


class Position:
    """Where the next iteration of a `TrainingBatches` begins.

    Args:
        length: Number of batches in an epoch.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._lock = threading.Lock()  # iterators read ahead in threads
        self._number, self._moves = 0, 0

    def set(self, number: int) -> None:
        """Lets the next iteration begin with a batch, and older iterators end alone."""
        with self._lock:
            self._number, self._moves = number, self._moves + 1

    def begin(self) -> np.ndarray:
        """Returns (number of `set` calls, first batch, last batch and one), int64."""
        with self._lock:
            end = (self._number // self.length + 1) * self.length
            return np.array([self._moves, self._number, end], "int64")

    def finish(self, mark: np.ndarray) -> np.bool_:
        """Moves to the next epoch after the last batch of the present one.

        Args:
            mark: (number of `set` calls, batch) of a batch that is yielded.
        """
        moves, number = mark
        with self._lock:
            present = number // self.length == self._number // self.length
            if moves == self._moves and present and (number + 1) % self.length == 0:
                self._number = int(number) + 1
        return np.bool_(True)


def training_batches(
    images: Images,
    model: Any,
    batch_size: int,
    augment: str | Augmentation | None = None,
    seed: int = 0,
    *,
    classes: int | None = None,
    normalize: bool | None = None,
    shard: tuple[int, int] = (0, 1),
    balanced: bool = False,
) -> TrainingBatches:
    """Returns batches for training: see `TrainingImages.batches`.

    A batch may be larger than the set of images: it then has some of them twice.
    """
    augmentation = find_augmentation(augment)
    size, seed = integer("batch_size", batch_size, 1), integer("seed", seed, 0)
    _check(augmentation, size, bool(classes) or images.has_several_labels)
    if balanced:
        _check_balanced(images)
    repeats = augmentation.repeats
    rows = Rows.of(size, shard, pairs=bool(augmentation.mixing), repeats=repeats)
    images, transform, normalize = images.fitted(model, normalize)
    if images.channels != 3 and augmentation.changes_colours:
        log.warning(
            "augment: changes of colours are left out for images of %d channel%s.",
            images.channels,
            "s" * (images.channels > 1),
        )
        augmentation = dataclasses.replace(augmentation, colours=False)
    example = _example(images, transform, normalize, augmentation, classes)

    def mixed(x: Tensor, y: Tensor, marks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        key = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int64), marks[0, 1]]), 1)
        return *mix_one_of(augmentation.mixing, x, y, rows, key), marks

    def make(starts: tf.data.Dataset) -> tf.data.Dataset:
        numbered = _numbered(starts, images, augmentation, seed, rows, balanced)
        batches = numbered.map(example, tf.data.AUTOTUNE)
        batches = batches.batch(rows.count, drop_remainder=True)
        if augmentation.mixing:
            batches = batches.map(mixed, tf.data.AUTOTUNE)
        return batches.prefetch(tf.data.AUTOTUNE)

    return TrainingBatches(make, max(1, round(len(images) / size)))


def _check(augmentation: Augmentation, batch_size: int, can_mix: bool) -> None:
    if 1 < augmentation.repeats >= batch_size:
        raise ArgumentError(
            f"`augment`: a batch of {batch_size} would be copies of one image. Take a "
            f"larger `batch_size`, or fewer `repeats` than {augmentation.repeats}.",
            "augment",
            "batch_size",
        )
    if augmentation.mixing and not can_mix:
        raise ArgumentError(
            "`augment` mixes images and their labels, which must be one-hot: give "
            "`classes=len(images.class_names)`, also for the validation images, and "
            "compile with CategoricalCrossentropy.",
            "augment",
            "classes",
        )


def _check_balanced(images: Images) -> None:
    if images.has_several_labels or not isinstance(images, IndexedImages):
        received, instead = "a stream", "`class_weight` of `fit`"
        if images.has_several_labels:
            received, instead = "several labels", "a loss such as AsymmetricLoss"
        raise ArgumentError(
            "`balanced` needs images with one label each, of files or an array. "
            f"Received: {received}. Give {instead}.",
            "balanced",
        )


def _numbered(
    starts: tf.data.Dataset,
    images: Images,
    augmentation: Augmentation,
    seed: int,
    rows: Rows,
    balanced: bool,
) -> tf.data.Dataset:
    """Returns ((seed, draws, mark), (item, label)) of the rows of an iteration.

    Args:
        starts: As for the function `make` of `TrainingBatches`.
    """

    def drawn(mark: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        seeds, draws = augmentation.draws(seed, mark[1], rows.batch_size)
        return seeds[rows.read], draws[rows.read], tf.tile(mark[None], [rows.count, 1])

    def iteration(start: Tensor) -> tf.data.Dataset:
        moves, first, end = tf.unstack(start)
        marks = tf.data.Dataset.range(first, end).map(lambda i: tf.stack([moves, i]))
        examples = images.shuffled(seed, first, rows, balanced)
        return tf.data.Dataset.zip(marks.map(drawn).unbatch(), examples)

    return starts.flat_map(iteration)


def _example(
    images: Images,
    transform: Preprocessing,
    normalize: bool,
    augmentation: Augmentation,
    classes: int | None,
) -> Callable:
    """Returns the function that makes (image, label, mark) of a row."""
    mean, std = np.array(transform.mean, "float32"), np.array(transform.std, "float32")
    larger, changes = augmentation.larger(transform.size), augmentation.changes
    sizes: Any = {"size": transform.size, "antialias": transform.antialias}
    if augmentation.area == 1 and not larger:
        images = images.in_memory(transform, False)
    # Of other channels the mean is grey, and black is two deviations below it: they may
    # have a small part of the range.
    other = bool(changes) and images.channels != 3
    scale, offset = 64 / (255 * std), operations.GREY - 64 * mean / std

    def example(drawn: tuple, pair: tuple) -> tuple[Tensor, Tensor, Tensor]:
        (own_seed, draws, mark), (item, label) = drawn, pair
        if larger:
            image = crop_of_resized(images, item, larger, seed=own_seed, **sizes)
        elif augmentation.area < 1:
            area = augmentation.area
            image = random_crop(images, item, area, seed=own_seed, **sizes)
        else:
            image = images.transformed(item, transform, normalize=False)
        if other:
            image = operations.per_channel(image, scale, offset)
        for i, change in enumerate(changes):
            image = change(image, draws[i])
        if other:
            image = operations.per_channel(image, 1 / scale, -offset / scale)
        if augmentation.erasing:
            image = operations.erase(image, augmentation.erasing, own_seed, mean, std)
        if normalize:  # mixing does not change the result
            image = operations.per_channel(image, 1 / (255 * std), -mean / std)
        label = label_of(label, classes)
        shape = (*transform.size, images.channels)
        return tf.ensure_shape(image, shape), label, mark

    return example
