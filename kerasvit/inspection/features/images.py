"""Batches of images for a functional model."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer


def check_images(model: keras.Model, images: Any) -> None:
    """Raises an `ArgumentError` for images of another shape than the model takes."""
    expected, received = model.inputs[0].shape, tuple(getattr(images, "shape", ()))
    fits = len(expected) == len(received) and all(
        e in (None, r) for e, r in zip(expected, received, strict=True)
    )
    if not fits or not received[0]:
        raise ArgumentError(
            f"`x` must be images {expected[1:]}, the size that the model is built for, "
            f"in batches. Received: shape {received}. Resize the images, or the model.",
            "x",
        )


def image_batches(x: Any, batch_size: int = 32) -> Iterator[np.ndarray]:
    """Yields batches of images as arrays, at least one.

    Args:
        x: Array (N, H, W, C); or an iterable of batches, each an array of images or a
            tuple that begins with one, such as a `tf.data.Dataset` of (x, y).
        batch_size: Number of images per batch, for an array; ≥ 1.

    Raises:
        ValueError: `x` is neither, or has no images.
    """
    if hasattr(x, "shape"):
        integer("batch_size", batch_size, 1)
        batches: Iterable = (
            x[i : i + batch_size] for i in range(0, len(x), batch_size)
        )
    elif isinstance(x, Iterable) and not isinstance(x, (str, dict)):
        batches = (b[0] if isinstance(b, (tuple, list)) else b for b in x)
    else:
        raise ArgumentError(
            "`x` must be an array of images (N, H, W, C) or an iterable of batches. "
            f"Received: {type(x).__name__}.",
            "x",
        )
    empty = True
    for batch in batches:
        if not hasattr(batch, "shape"):
            raise ArgumentError(
                "A batch of `x` must be an array of images, or a tuple that begins "
                f"with one. Received: {type(batch).__name__}.",
                "x",
            )
        empty = False
        yield ops.convert_to_numpy(batch) if ops.is_tensor(batch) else np.asarray(batch)
    if empty:
        raise ArgumentError("`x` must have at least one image. Received: none.", "x")
