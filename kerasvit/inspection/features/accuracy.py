"""Accuracy of a classifier whose images or weights are changed."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.records import check_one_label


def check_labels(model: keras.Model, y: Any, count: int) -> np.ndarray:
    """Checks that there is one class index of the model for each image.

    Args:
        model: Functional `keras.Model`.
        y: Class indices (N,).
        count: Number of images.

    Raises:
        ValueError: The model does not return (batch, classes) of one label per image,
            or `y` has another shape or type, or labels out of the model's range.
    """
    shape = model.outputs[0].shape
    if len(model.outputs) != 1 or len(shape) != 2:
        raise ArgumentError(
            "`model` must return logits or probabilities (batch, classes). Received: a "
            f"model with outputs {[each.shape for each in model.outputs]}.",
            "model",
        )
    check_one_label(model)
    y = np.asarray(y)
    if y.shape != (count,) or not np.issubdtype(y.dtype, np.integer):
        raise ArgumentError(
            f"`y` must be one class index for each of the {count} images. Received: "
            f"shape {y.shape}, {y.dtype}. Take `y.argmax(-1)` of one-hot targets.",
            "y",
        )
    if y.min() < 0 or y.max() >= shape[1]:
        raise ArgumentError(
            f"`y` must be in [0, {shape[1] - 1}], for {shape[1]} classes. Received: "
            f"labels from {y.min()} to {y.max()}.",
            "y",
        )
    return y


def accuracy(
    outputs: Callable[[Any], Any],
    x: np.ndarray,
    y: np.ndarray,
    batch_size: int,
    changed: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> float:
    """Returns the share of images whose largest output is that of their label.

    Args:
        outputs: Function of a batch of images that returns (batch, classes).
        x: Images (N, H, W, C).
        y: Class indices (N,).
        batch_size: Number of images per batch.
        changed: Function of the number of a batch's first image and the batch, which
            returns the images to classify; None: the batch.

    Raises:
        ValueError: Outputs are NaN or infinite.
    """
    correct = 0
    for start in range(0, len(x), batch_size):
        images = x[start : start + batch_size]
        if changed is not None:
            images = changed(start, images)
        found = ops.convert_to_numpy(outputs(images))
        if not np.isfinite(found).all():
            raise ValueError(
                "The outputs of the model must be finite. Received: Inf or NaN for "
                f"images {start} to {start + len(images) - 1} (from 0). Check them and "
                "the weights."
            )
        correct += int(np.sum(found.argmax(-1) == y[start : start + batch_size]))
    return correct / len(x)
