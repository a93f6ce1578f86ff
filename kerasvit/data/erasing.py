"""Random erasing of training images: a rectangle becomes noise."""

import math

import tensorflow as tf

ATTEMPTS = 10  # at a rectangle that fits
AREAS = (0.02, 1 / 3)  # of the rectangle, as a share of the image's
RATIOS = (0.3, 1 / 0.3)  # height / width


def erase(image, probability: float, seed, mean, std):
    """Replaces a random rectangle by normal noise, each value separately.

    Zhong et al. 2020, arXiv 1708.04896, in the mode "pixel" of DeiT and timm
    (timm/data/random_erasing.py). There the image is normalised and the noise has mean
    0 and deviation 1. Here it has the mean and the deviation that these become in
    pixels, and is not clipped: after normalisation the image is the same.

    Args:
        image: float32 (height, width, 3), values from 0 to 255.
        probability: That an image is changed, in [0, 1].
        seed: int32 (2,), of this image.
        mean, std: Of the normalisation, for values from 0 to 1, (3,).
    """
    seeds = tf.unstack(tf.random.split(seed, 3))

    def erased():
        mask = _rectangle(tf.shape(image)[:2], seeds[1])
        noise = tf.random.stateless_normal(tf.shape(image), seeds[2])
        return tf.where(mask[..., None], 255 * (mean + std * noise), image)

    drawn = tf.random.stateless_uniform((), seeds[0]) < probability
    return tf.cond(drawn, erased, lambda: image)


def _rectangle(shape, seed):
    """Returns the pixels of a rectangle, bool (height, width); none if none fits."""
    sides = tf.cast(shape, tf.float32)
    draws = tf.unstack(tf.random.stateless_uniform((ATTEMPTS, 4), seed), axis=1)
    area = (AREAS[0] + (AREAS[1] - AREAS[0]) * draws[0]) * tf.reduce_prod(sides)
    low, high = (math.log(ratio) for ratio in RATIOS)
    ratio = tf.exp(low + (high - low) * draws[1])
    lengths = tf.round(tf.sqrt(tf.stack([area * ratio, area / ratio], axis=1)))
    fits = tf.reduce_all(lengths < sides, axis=1)
    first = tf.argmax(tf.cast(fits, tf.int32))
    length = lengths[first]
    start = tf.floor(tf.stack(draws[2:], axis=1)[first] * (sides - length + 1))
    inside = []
    for axis in range(2):
        place = tf.range(sides[axis])
        inside.append((place >= start[axis]) & (place < start[axis] + length[axis]))
    return inside[0][:, None] & inside[1][None] & tf.reduce_any(fits)
