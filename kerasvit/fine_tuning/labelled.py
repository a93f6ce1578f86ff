"""Reads labelled images of any form that `fit` takes, batch by batch."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, NoReturn

import keras
import numpy as np

from kerasvit.arguments import ArgumentError


@dataclasses.dataclass(frozen=True)
class Batch:
    """Labelled images.

    Attributes:
        x: Inputs of the model: an array, or several in a structure.
        labels: Class indices, int64 (count,); or 0 and 1, int64 (count, classes).
        weights: Weights of the images, float64 (count,), > 0; or None.
    """

    x: Any
    labels: np.ndarray
    weights: np.ndarray | None

    def of(self, rows: Any) -> "Batch":
        """Returns some of the images: those of a slice or of indices."""
        x = keras.tree.map_structure(lambda part: part[rows], self.x)
        weights = None if self.weights is None else self.weights[rows]
        return Batch(x, self.labels[rows], weights)


def labelled_batches(
    name: str,
    data: Any,
    classes: int,
    limit: int,
    batch_size: int,
    seed: int,
    several: bool = False,
) -> Iterator[Batch]:
    """Yields at most `limit` images, without those that came before or weigh nothing.

    An image that comes again, as in data that repeat without an end, is left out: its
    copies would be among the images that a classifier was fitted to and among others.

    Args:
        name: Name of the argument, for errors.
        data: As for `fit_head`.
        classes: Number of classes.
        limit: Number of images to read, ≥ 1. Of arrays they are chosen at random, of
            batches they are the first.
        batch_size: Of arrays.
        seed: Of the choice.
        several: Whether an image may have several labels, or none.

    Raises:
        ArgumentError: The data have another form, or a label or weight is wrong.
    """
    seen: set[bytes] = set()
    if isinstance(data, tuple):
        batches = _cut(name, data, limit, batch_size, seed)
    else:
        batches = iterated(name, data)
    for x, y, weights in batches:
        read = label_rows if several else class_indices
        labels = read(name, y, len(keras.tree.flatten(x)[0]), classes)
        batch = Batch(x, labels, _checked_weights(name, weights, len(labels)))
        batch = batch.of(slice(limit))
        limit -= len(batch.labels)
        use = [
            _is_new(batch, i, seen) and (batch.weights is None or batch.weights[i] > 0)
            for i in range(len(batch.labels))
        ]
        if any(use):
            yield batch.of(np.flatnonzero(use))
        if not limit:
            return


def label_rows(name: str, y: Any, count: int, classes: int) -> np.ndarray:
    """Returns which labels images have, 0 and 1 in int64 (count, classes).

    Args:
        name: Name of the argument, for errors.
        y: (count, classes) of 0 and 1, in any dtype.
        count: Number of images.
        classes: Number of classes.

    Raises:
        ArgumentError: The labels are none of these.
    """
    y = np.asarray(y)
    if y.shape != (count, classes) or not np.isin(y, (0, 1)).all():
        raise ArgumentError(
            f"Labels of `{name}` must be 0 or 1 for each of the model's classes, "
            f"({count}, {classes}), for {count} images with several labels or none. "
            f"Received: shape {y.shape}, {y.dtype}.",
            name,
        )
    return y.astype("int64")


def class_indices(name: str, y: Any, count: int, classes: int) -> np.ndarray:
    """Returns class indices of class indices or of one-hot rows, in int64.

    Args:
        name: Name of the argument, for errors.
        y: (count,) or (count, 1) of whole numbers in [0, classes), in any dtype; or
            (count, classes), each row a distribution whose largest entry is the class.
        count: Number of images.
        classes: Number of classes.

    Raises:
        ArgumentError: The labels are none of these.
    """
    y = np.asarray(y)
    number = np.issubdtype(y.dtype, np.number) or y.dtype == bool
    if number and y.shape == (count, classes) and classes > 1:
        y = y.astype("float64")
        best = y == y.max(1, keepdims=True)
        wrong = (np.abs(y.sum(1) - 1) > 1e-2) | (y < 0).any(1) | (best.sum(1) != 1)
        if wrong.any():
            image = int(np.argmax(wrong))
            raise ArgumentError(
                f"One-hot labels of `{name}` must be ≥ 0, have the sum 1 and one "
                f"largest entry: one class per image. Received: {y[image]} for image "
                f"{image} (from 0) of a batch. If images have several labels: "
                "`fit_head` has task='multilabel', and for a trained model "
                "model.record['problem_type'] = 'multi_label_classification' says it.",
                name,
            )
        return best.argmax(1)
    if not number or y.shape not in ((count,), (count, 1)):
        raise ArgumentError(
            f"Labels of `{name}` must be class indices ({count},), or one-hot rows "
            f"({count}, {classes}), for {count} images. Received: shape {y.shape}, "
            f"{y.dtype}.",
            name,
        )
    y = y.reshape(-1)
    wrong = ~((y >= 0) & (y < classes) & (y == np.floor(y)))
    if wrong.any():
        image = int(np.argmax(wrong))
        raise ArgumentError(
            f"Labels of `{name}` must be whole numbers in [0, {classes - 1}], for the "
            f"model's {classes} classes. Received: {y[image]} for image {image} (from "
            "0) of a batch. Build the model with the right `num_classes`, or count "
            "classes from 0.",
            name,
        )
    return y.astype("int64")


def _checked_weights(name: str, weights: Any, count: int) -> np.ndarray | None:
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.shape not in ((count,), (count, 1)) or not np.issubdtype(
        array.dtype, np.number
    ):
        raise ArgumentError(
            f"Sample weights of `{name}` must be one number per image, ({count},). "
            f"Received: shape {array.shape}, {array.dtype}.",
            name,
        )
    array = array.reshape(-1).astype("float64")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ArgumentError(
            f"Sample weights of `{name}` must be finite and ≥ 0. Received: "
            f"{array.min()} to {array.max()}.",
            name,
        )
    return array


def _is_new(batch: Batch, i: int, seen: set[bytes]) -> bool:
    digest = hashlib.blake2b(batch.labels[i].tobytes(), digest_size=16)
    for part in keras.tree.flatten(batch.x):
        digest.update(np.ascontiguousarray(part[i]).tobytes())
    new = digest.digest() not in seen
    seen.add(digest.digest())
    return new


def _cut(
    name: str, data: tuple, limit: int, batch_size: int, seed: int
) -> Iterator[tuple]:
    """Yields batches of arrays, in their order, of images chosen at random."""
    x, y, weights = arrays(name, data)
    count = len(y)
    chosen = np.random.default_rng(seed).permutation(count)[:limit]
    chosen = np.sort(chosen)
    for start in range(0, len(chosen), batch_size):
        rows = chosen[start : start + batch_size]
        yield keras.tree.map_structure(
            lambda part, rows=rows: None if part is None else part[rows],
            (x, y, weights),
        )


def iterated(name: str, data: Any) -> Iterator[tuple]:
    """Returns the batches (images, labels, weights or None) of data of any form.

    Raises:
        ArgumentError: The data are no batches of these; for a batch, when it is read.
    """
    if isinstance(data, keras.utils.PyDataset):
        count = data.num_batches
        indices = itertools.count() if count is None else range(count)
        return (arrays(name, data[i]) for i in indices)
    if isinstance(data, dict | str | list | np.ndarray) or not hasattr(
        data, "__iter__"
    ):
        if not isinstance(data, list) or any(hasattr(part, "shape") for part in data):
            _refuse(name, data)
    return (arrays(name, batch) for batch in data)


def read_again(model: keras.Model, data: Any, batch_size: int) -> Iterator[tuple]:
    """Returns batches (images, labels, weights or None) of all data, in order.

    Args:
        model: For images of `kerasvit.data`.
        data: As for `fit_head`, where training images are in order, each once.
        batch_size: Of arrays and images.

    Raises:
        ArgumentError: The data are none of these; for a batch, when it is read.
    """
    if hasattr(data, "images") and hasattr(data.images, "batches"):
        data = data.images  # of training images, in order, each once
    if hasattr(data, "batches"):
        data = data.batches(model, batch_size)
    if not isinstance(data, tuple):
        batches = iterated("data", data)
    else:
        x, y, weights = arrays("data", data)
        batches = (
            keras.tree.map_structure(
                lambda part, i=i: None if part is None else part[i : i + batch_size],
                (x, y, weights),
            )
            for i in range(0, len(y), batch_size)
        )
    for batch in batches:
        check_shape(model, "data", batch[0])
        yield batch


def check_shape(model: keras.Model, name: str, images: Any) -> None:
    """Raises an `ArgumentError` for a batch of another shape than a model takes.

    Args:
        model: Model; one with several inputs is not checked.
        name: Name of the argument, for errors.
        images: Batch of images.
    """
    if len(model.inputs) > 1 or not hasattr(images, "shape"):
        return
    shape, found = tuple(model.inputs[0].shape[1:]), tuple(images.shape)
    sides = zip(shape, found[1:], strict=False)
    if len(found) != len(shape) + 1 or any(s not in (None, n) for s, n in sides):
        expected = ", ".join("any" if side is None else str(side) for side in shape)
        raise ArgumentError(
            f"`{name}` must have images of the shape that the model takes, ({expected})"
            f". Received: batches of shape {found}. Resize them, or build the model "
            "with another `image_size`.",
            name,
        )


def arrays(name: str, batch: Any) -> tuple:
    """Returns inputs, labels and sample weights as NumPy arrays of equal lengths."""
    if not isinstance(batch, tuple | list) or not 2 <= len(batch) <= 3:
        _refuse(name, batch)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(tuple(batch))
    x, y, weights = keras.tree.map_structure(
        lambda part: None if part is None else keras.ops.convert_to_numpy(part),
        (x, y, weights),
    )
    parts = [part for part in keras.tree.flatten((x, y)) if part is not None]
    shapes = [part.shape for part in parts]
    if len(parts) == 2 and shapes[0] and not shapes[1]:
        raise ArgumentError(
            f"`{name}` must have batches of images, not single ones. Received: an "
            f"image of shape {shapes[0]} with its label. Call .batch(32) of a "
            "tf.data.Dataset, or set the `batch_size` of a torch DataLoader.",
            name,
        )
    if len(parts) < 2 or any(not shape for shape in shapes):
        _refuse(name, batch)
    if len({shape[0] for shape in shapes}) > 1:
        raise ArgumentError(
            f"`{name}` must have one label for each image. Received: arrays of shapes "
            f"{', '.join(map(str, shapes[:5]))}{', …' if shapes[5:] else ''}.",
            name,
        )
    return x, y, weights


def _refuse(name: str, data: Any) -> NoReturn:
    raise ArgumentError(
        f"`{name}` must be arrays in a tuple (images, labels), or batches of them: a "
        "tf.data.Dataset, a keras.utils.PyDataset, a torch DataLoader, a generator. "
        f"Sample weights may be third. Received: {type(data).__name__}"
        + (f" of {len(data)}" if hasattr(data, "__len__") else "")
        + ". numpy.asarray makes lists of numbers arrays.",
        name,
    )
