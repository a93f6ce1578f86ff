"""Batches with every image once, prepared as `kerasvit.classify` prepares it.

    batches = evaluation_batches(images, model, batch_size=64)

Also what `training_batches.py` needs of a model: `transform_of`.
"""

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from kerasvit.arguments import ArgumentError, integer
from kerasvit.preprocessing import Preprocessing
from kerasvit.types import Tensor

from .shards import Rows

if TYPE_CHECKING:
    from .images import Images


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


def evaluation_batches(
    images: "Images",
    model: Any,
    batch_size: int,
    *,
    classes: int | None = None,
    normalize: bool | None = None,
    shard: tuple[int, int] = (0, 1),
    pad: bool = False,
) -> tf.data.Dataset:
    """Returns batches (images, labels[, weights]): see `Images.batches`."""
    transform, normalize = transform_of(model, normalize)
    rows = Rows.of(integer("batch_size", batch_size, 1), shard)
    count = len(images)
    images = images.in_memory(transform, normalize)
    pad = pad or shard[1] > 1
    size = -(-count // batch_size) * batch_size  # of all batches, when they are full

    def labelled(label: Tensor) -> Tensor:
        return tf.one_hot(label, classes) if classes else label

    def example(item: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        image = images.transformed(item, transform, normalize)
        weight = (tf.constant(size / count, tf.float32),) if pad else ()
        return image, labelled(label), *weight

    examples = images.listed(rows).map(example, num_parallel_calls=tf.data.AUTOTUNE)
    if pad:
        grey = tf.fill((*transform.size, 3), 0.0 if normalize else 127.5)
        fill = tf.data.Dataset.from_tensors((grey, labelled(tf.constant(0)), 0.0))
        missing = size * rows.count // batch_size - rows.among(count)
        examples = examples.concatenate(fill.repeat(missing))
    batches = examples.batch(rows.count, drop_remainder=pad)
    return batches.prefetch(tf.data.AUTOTUNE)
