"""Makes batches of images that are corrupted when they are read.

outputs = predict(candidate, Corrupted(image_set, "fog"), corrupted_batches)
"""

import dataclasses

import numpy as np
import tensorflow as tf

from kerasvit import Preprocessing
from kerasvit.data import Rows

from .corruptions import corrupt
from .kinds import SEVERITIES
from .sets import ImageSet


@dataclasses.dataclass(frozen=True, eq=False)
class Corrupted:
    """Images of a set with a corruption of all severities.

    Output 5 i + s belongs to the image i with severity s + 1.
    """

    image_set: ImageSet
    kind: str

    def __len__(self):
        return len(SEVERITIES) * len(self.image_set.labels)


def corrupted_batches(
    images: Corrupted,
    transform: Preprocessing,
    *,
    batch_size: int,
    normalize: bool = True,
    shard: tuple[int, int] = (0, 1),
    pad: bool = False,
) -> tf.data.Dataset:
    """Returns batches (images, numbers[, weights]) of all severities.

    As for ImageNet-C, an image is resized and cropped, rounded to uint8, corrupted, and
    then normalised. It is decoded once. Its seed is its number in the whole set, so
    that a sample of the set has the same pixels.

    Args:
        images: The images.
        transform, batch_size, normalize, shard: As for `Images.batches`.
        pad: Likewise; a weight is 1, or 0 for an image that fills a batch.
    """
    rows, count = Rows.of(batch_size, shard), len(images.image_set.labels)
    pad = pad or shard[1] > 1
    as_it_is = dataclasses.replace(transform, crop=1.0, mode="squash")
    versions = len(SEVERITIES)

    def corrupted(pixels, number):
        pixels = transform(pixels, normalize=False)
        pixels = np.clip(np.round(pixels), 0, 255).astype("uint8")
        seed = int(images.image_set.numbers[number])
        return np.stack(
            [
                as_it_is(corrupt(pixels, images.kind, i, seed), normalize=normalize)
                for i in SEVERITIES
            ]
        )

    def example(item, number):
        pixels = images.image_set.images.whole(item)
        found = tf.numpy_function(
            corrupted, [pixels, number], tf.float32, stateful=False
        )
        found = tf.ensure_shape(found, (versions, *transform.size, 3))
        weights = (tf.ones(versions),) if pad else ()
        return found, versions * number + tf.range(versions), *weights

    examples = images.image_set.images.listed(rows)
    examples = examples.map(example, num_parallel_calls=tf.data.AUTOTUNE)
    if pad:
        size = (versions, *transform.size, 3)
        zeros = tf.zeros(size), tf.zeros(versions, tf.int32), tf.zeros(versions)
        missing = -(-count // batch_size) * rows.count - rows.among(count)
        fill = tf.data.Dataset.from_tensors(zeros)
        examples = examples.concatenate(fill.repeat(missing))
    batches = examples.unbatch().batch(rows.count, drop_remainder=pad)
    return batches.prefetch(tf.data.AUTOTUNE)
