"""Random changes of one image in TensorFlow's graph, from numbers drawn before.

An operation is a function (image, draws) of a float32 image (height, width, C) with
values from 0 to 255 and of random numbers in [0, 1). It returns an image of that shape
and is cheap enough to be called per image, so that only the drawn ones are computed.
The colours are those of keras.layers, whose images the tests compare. `erase`, random
erasing, draws its numbers itself.
"""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from kerasvit.types import Tensor

DRAWS = 3  # random numbers of an operation
BLACK, GREY = 0.0, 128.0  # of new pixels
LUMA = (0.2989, 0.587, 0.114)  # of tf.image.rgb_to_grayscale
ATTEMPTS = 10  # of `erase` at a rectangle that fits
AREAS = (0.02, 1 / 3)  # of the rectangle, as a share of the image's
RATIOS = (0.3, 1 / 0.3)  # height / width


def one_of(*operations: Callable) -> Callable:
    """Returns an operation that applies one of the others, drawn for each image."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        drawn = tf.cast(draws[0] * len(operations), tf.int32)
        inputs = [image, draws[1:]]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
        # tf.switch_case would insert all operations into the graph, whose executor
        # then takes twice the time to pass the ones that are not drawn.
        [changed] = tf.raw_ops.Case(
            branch_index=tf.minimum(drawn, len(operations) - 1),
            input=inputs,
            Tout=[image.dtype],
            branches=[tf.function(f).get_concrete_function(*specs) for f in operations],
        )
        return tf.ensure_shape(changed, image.shape)

    return apply


def flip(image: Tensor, draws: Tensor) -> Tensor:
    """Mirrors every second image."""
    return tf.cond(draws[0] < 0.5, lambda: tf.reverse(image, [1]), lambda: image)


def shift(share: float, degrees: float) -> Callable:
    """Returns an operation that translates and then rotates, by subpixels.

    Args:
        share: Largest translation, as a share of the image's side.
        degrees: Largest angle. New pixels are those of the edge.
    """

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
        down, right, angle = tf.unstack(2 * draws[:3] - 1)
        moved = (-right * share * width, -down * share * height)
        image = _interpolated(image, ((1.0, 0.0), (0.0, 1.0)), moved)
        (a, b), (c, d) = matrix = _rotation(angle * degrees)
        x, y = (width - 1) / 2, (height - 1) / 2
        return _interpolated(image, matrix, (x - a * x - b * y, y - c * x - d * y))

    return apply


def translate(share: float, fill: float) -> Callable:
    """Returns an operation that translates by whole pixels, at most `share` of a side.

    Args:
        share: Largest translation, as a share of the image's side.
        fill: Value of new pixels.
    """

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        shape = tf.shape(image)
        most = share * tf.cast(shape[:2], tf.float32)
        moved = tf.cast(tf.round((2 * draws[:2] - 1) * most), tf.int32)
        border = tf.maximum(tf.stack([moved, -moved], axis=1), 0)
        wide = tf.pad(image, tf.pad(border, ((0, 1), (0, 0))), constant_values=fill)
        return tf.slice(wide, tf.pad(border[:, 1], ((0, 1),)), shape)

    return apply


def shear(factor: float) -> Callable:
    """Returns an operation that shears both axes by at most `factor`."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        rows, columns = _grid(image)
        x, y = tf.unstack((2 * draws[:2] - 1) * factor)
        return _sampled(image, rows + y * columns, columns + x * rows, GREY)

    return apply


def rotate(degrees: float) -> Callable:
    """Returns an operation that rotates by at most an angle."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        rows, columns = _grid(image)
        y0, x0 = rows[-1] / 2, columns[:, -1:] / 2
        (a, b), (c, d) = _rotation((2 * draws[0] - 1) * degrees)
        x, y = columns - x0, rows - y0
        return _sampled(image, c * x + d * y + y0, a * x + b * y + x0, GREY)

    return apply


def brightness(factor: float) -> Callable:
    """Returns an operation that adds at most `factor` of the range."""
    return lambda image, draws: _clip(image + (2 * draws[0] - 1) * factor * 255)


def contrast(factor: float) -> Callable:
    """Returns an operation that multiplies the contrast by 1 to 1 + `factor`."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        mean = tf.reduce_mean(tf.reduce_mean(image, 0), 0)
        scale = 1 + draws[0] * factor
        return _clip(per_channel(image, tf.fill((3,), scale), mean * (1 - scale)))

    return apply


def saturation(factor: float) -> Callable:
    """Returns an operation that mixes -`factor` to `factor` of grey into colours."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        grey = (2 * draws[0] - 1) * factor
        mixed = tf.eye(3) * (1 - grey) + tf.constant(LUMA)[:, None] * grey
        return _clip(tf.reshape(tf.reshape(image, (-1, 3)) @ mixed, tf.shape(image)))

    return apply


def sharpness(factor: float) -> Callable:
    """Returns an operation that blurs, 0, to sharpens, 2 × `factor`; 1 is neutral."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        # The kernel is 1 / 13, and 5 / 13 in the middle.
        border = tf.pad(image, ((1, 1), (1, 1), (0, 0)))
        rows = border[:-2] + border[1:-1] + border[2:]
        box = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        smooth = 1 - 2 * factor * draws[0]
        return _clip(image * (1 - smooth * 9 / 13) + box * (smooth / 13))

    return apply


def posterize(bits: int) -> Callable:
    """Returns an operation that keeps the 1 to `bits` - 1 highest bits of values."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        step = 2.0 ** (7 - tf.floor(draws[0] * (bits - 1)))
        return tf.floor(image / step) * step

    return apply


def solarize(factor: float) -> Callable:
    """Returns an operation that inverts values from a threshold, at most `factor`."""

    def apply(image: Tensor, draws: Tensor) -> Tensor:
        above = tf.cast(image >= draws[0] * factor * 255, tf.float32)
        return image + above * (255 - 2 * image)  # faster than tf.where

    return apply


def auto_contrast(image: Tensor, draws: Tensor) -> Tensor:
    """Stretches the values of each channel to the whole range."""
    low = tf.reduce_min(tf.reduce_min(image, 0), 0)
    high = tf.reduce_max(tf.reduce_max(image, 0), 0)
    flat = high == low
    scale = tf.where(flat, 1.0, 255 / tf.where(flat, 1.0, high - low))
    return _clip(per_channel(image, scale, -tf.where(flat, 0.0, low * scale)))


def erase(
    image: Tensor, probability: float, seed: Tensor, mean: np.ndarray, std: np.ndarray
) -> Tensor:
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

    def erased() -> Tensor:
        mask = _rectangle(tf.shape(image)[:2], seeds[1])
        noise = tf.random.stateless_normal(tf.shape(image), seeds[2])
        return tf.where(mask[..., None], 255 * (mean + std * noise), image)

    drawn = tf.random.stateless_uniform((), seeds[0]) < probability
    return tf.cond(drawn, erased, lambda: image)


def per_channel(image: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Multiplies the channels by `scale` and adds `offset`, each of shape (C,)."""
    # TensorFlow broadcasts a row in a fraction of the time that it takes for a pixel.
    shape = tf.shape(image)
    scale, offset = (tf.tile(values, shape[1:2]) for values in (scale, offset))
    rows = tf.reshape(image, (shape[0], shape[1] * shape[2])) * scale + offset
    return tf.reshape(rows, shape)


def _clip(image: Tensor) -> Tensor:
    return tf.clip_by_value(image, 0.0, 255.0)


def _grid(image: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows (height, 1) and columns (1, width) of the pixels."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
    return tf.range(height)[:, None], tf.range(width)[None]


def _rotation(degrees: Tensor) -> tuple:
    angle = degrees * math.pi / 180
    sine, cosine = tf.sin(angle), tf.cos(angle)
    return (cosine, -sine), (sine, cosine)


def _interpolated(image: Tensor, matrix: tuple, offset: tuple) -> Tensor:
    """Returns the pixels at positions `matrix @ (x, y) + offset`, bilinear."""
    (a, b), (c, d) = matrix
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.stack([a, b, offset[0], c, d, offset[1], 0.0, 0.0])[None],
        output_shape=tf.shape(image)[:2],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )[0]


def _sampled(image: Tensor, rows: Tensor, columns: Tensor, fill: float) -> Tensor:
    """Returns the nearest pixels of positions (height, width).

    In a graph, tf.gather takes a fifth of the time of an interpolation by
    ImageProjectiveTransformV3.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    border = tf.pad(image, ((1, 1), (1, 1), (0, 0)), constant_values=fill)

    def nearest(positions: Tensor, side: Tensor) -> Tensor:
        positions = tf.clip_by_value(positions, -1.0, tf.cast(side, tf.float32))
        return tf.cast(positions + 1.5, tf.int32)  # of the border, rounded

    index = nearest(rows, height) * (width + 2) + nearest(columns, width)
    return tf.gather(tf.reshape(border, (-1, image.shape[-1])), index)


def _rectangle(shape: Tensor, seed: Tensor) -> Tensor:
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
