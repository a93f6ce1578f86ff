"""Checks of the arrays that the measures take."""

from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError


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


def check_widths(train: np.ndarray, test: np.ndarray) -> None:
    """Raises an `ArgumentError` unless the features have the same width."""
    if train.shape[1] != test.shape[1]:
        raise ArgumentError(
            "Features of training and test images must have the same width. Received: "
            f"{train.shape[1]} and {test.shape[1]}.",
            "train_features",
            "test_features",
        )
