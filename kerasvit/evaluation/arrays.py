"""Checks of the arrays that the measures take."""

from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, number


def matrix(name: str, value: Any) -> np.ndarray:
    """Checks a table of finite numbers and returns it in float32 or float64.

    Args:
        name: Name of the argument.
        value: Array (count, width), one row per image; count and width ≥ 1.

    Raises:
        ArgumentError: The shape is another one, or a number is NaN or infinite; the
            message has the number of the first such image, from 0.
    """
    array = np.asarray(value)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype("float32")
    if array.ndim != 2 or not array.size:
        raise ArgumentError(
            f"`{name}` must be an array (images, width) that is not empty. Received: "
            f"shape {array.shape}.",
            name,
        )
    finite = np.isfinite(array).all(1)
    if not finite.all():
        image = int(np.argmin(finite))
        raise ArgumentError(
            f"`{name}` must be finite. Received: NaN or an infinite number for image "
            f"{image} (from 0), and for {np.sum(~finite)} of {len(array)} images in "
            "all. Check this image and the weights of the model.",
            name,
        )
    return array


def class_labels(name: str, value: Any, count: int, classes: int) -> np.ndarray:
    """Checks one class index per image and returns them in int64.

    Args:
        name: Name of the argument.
        value: Array (count,) of whole numbers in [0, classes).
        count: Number of images.
        classes: Number of classes.

    Raises:
        ArgumentError: The shape or the type is another one, or a label is out of its
            range; the message has the number of the first such image, from 0.
    """
    array = np.asarray(value)
    if array.shape != (count,) or not np.issubdtype(array.dtype, np.integer):
        raise ArgumentError(
            f"`{name}` must be an array ({count},) of whole numbers, one class index "
            f"per image. Received: shape {array.shape}, {array.dtype}.",
            name,
        )
    wrong = (array < 0) | (array >= classes)
    if wrong.any():
        image = int(np.argmax(wrong))
        raise ArgumentError(
            f"`{name}` must be in [0, {classes - 1}], for {classes} classes. Received: "
            f"{array[image]} for image {image} (from 0). Are these the labels of the "
            "task that the model was trained for?",
            name,
        )
    return array.astype("int64")


def share(name: str, value: Any, *, ends: bool = False) -> float:
    """Checks a number between 0 and 1 and returns it as a float.

    Args:
        name: Name of the argument.
        value: Value that the caller passed.
        ends: Whether it may be 0 or 1.

    Raises:
        ArgumentError: It is out of its range.
    """
    number(name, value)
    if 0 < value < 1 or (ends and value in (0, 1)):
        return float(value)
    raise ArgumentError(
        f"`{name}` must be a share between 0 and 1, such as 0.95 for 95 %. Received: "
        f"{value!r}.",
        name,
    )


def label_table(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Checks the labels of images that may have several, and returns them as booleans.

    Args:
        name: Name of the argument.
        value: Array (count, classes) of 0 and 1, or of booleans.
        shape: (count, classes).

    Raises:
        ArgumentError: The shape is another one, or a value is neither 0 nor 1.
    """
    array = np.asarray(value)
    if array.shape != shape:
        raise ArgumentError(
            f"`{name}` must have one column per class, 1 where the image has it: shape "
            f"{shape}. Received: {array.shape}.",
            name,
        )
    if not np.isin(array, (0, 1)).all():
        raise ArgumentError(f"`{name}` must be 0 or 1. Received: other values.", name)
    return array.astype(bool)


def check_widths(train: np.ndarray, test: np.ndarray) -> None:
    """Raises an `ArgumentError` unless the features have the same width."""
    if train.shape[1] != test.shape[1]:
        raise ArgumentError(
            "Features of training and test images must have the same width. Received: "
            f"{train.shape[1]} and {test.shape[1]}.",
            "train_features",
            "test_features",
        )
