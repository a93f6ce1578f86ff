"""Random changes of one image in TensorFlow's graph, from numbers drawn before.

An operation is a function (image, draws) of a float32 image (height, width, 3) with
values from 0 to 255 and of random numbers in [0, 1). It returns an image of that shape
and is cheap enough to be called per image, so that only the drawn ones are computed.
The colours are those of keras.layers, whose images the tests compare.
"""

import math
from collections.abc import Callable

import tensorflow as tf

DRAWS = 3  # random numbers of an operation
BLACK, GREY = 0.0, 128.0  # of new pixels
LUMA = (0.2989, 0.587, 0.114)  # of tf.image.rgb_to_grayscale


def one_of(*operations: Callable) -> Callable:
    """Returns an operation that applies one of the others, drawn for each image."""

    def apply(image, draws):
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


def flip(image, draws):
    """Mirrors every second image."""
    return tf.cond(draws[0] < 0.5, lambda: tf.reverse(image, [1]), lambda: image)


def shift(share: float, degrees: float) -> Callable:
    """Returns an operation that translates and then rotates, by subpixels.

    Args:
        share: Largest translation, as a share of the image's side.
        degrees: Largest angle. New pixels are those of the edge.
    """

    def apply(image, draws):
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

    def apply(image, draws):
        shape = tf.shape(image)
        most = share * tf.cast(shape[:2], tf.float32)
        moved = tf.cast(tf.round((2 * draws[:2] - 1) * most), tf.int32)
        border = tf.maximum(tf.stack([moved, -moved], axis=1), 0)
        wide = tf.pad(image, tf.pad(border, ((0, 1), (0, 0))), constant_values=fill)
        return tf.slice(wide, tf.pad(border[:, 1], ((0, 1),)), shape)

    return apply


def shear(factor: float) -> Callable:
    """Returns an operation that shears both axes by at most `factor`."""

    def apply(image, draws):
        rows, columns = _grid(image)
        x, y = tf.unstack((2 * draws[:2] - 1) * factor)
        return _sampled(image, rows + y * columns, columns + x * rows, GREY)

    return apply


def rotate(degrees: float) -> Callable:
    """Returns an operation that rotates by at most an angle."""

    def apply(image, draws):
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

    def apply(image, draws):
        mean = tf.reduce_mean(tf.reduce_mean(image, 0), 0)
        scale = 1 + draws[0] * factor
        return _clip(per_channel(image, tf.fill((3,), scale), mean * (1 - scale)))

    return apply


def saturation(factor: float) -> Callable:
    """Returns an operation that mixes -`factor` to `factor` of grey into colours."""

    def apply(image, draws):
        grey = (2 * draws[0] - 1) * factor
        mixed = tf.eye(3) * (1 - grey) + tf.constant(LUMA)[:, None] * grey
        return _clip(tf.reshape(tf.reshape(image, (-1, 3)) @ mixed, tf.shape(image)))

    return apply


def sharpness(factor: float) -> Callable:
    """Returns an operation that blurs, 0, to sharpens, 2 × `factor`; 1 is neutral."""

    def apply(image, draws):
        # The kernel is 1 / 13, and 5 / 13 in the middle.
        border = tf.pad(image, ((1, 1), (1, 1), (0, 0)))
        rows = border[:-2] + border[1:-1] + border[2:]
        box = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        smooth = 1 - 2 * factor * draws[0]
        return _clip(image * (1 - smooth * 9 / 13) + box * (smooth / 13))

    return apply


def posterize(bits: int) -> Callable:
    """Returns an operation that keeps the 1 to `bits` - 1 highest bits of values."""

    def apply(image, draws):
        step = 2.0 ** (7 - tf.floor(draws[0] * (bits - 1)))
        return tf.floor(image / step) * step

    return apply


def solarize(factor: float) -> Callable:
    """Returns an operation that inverts values from a threshold, at most `factor`."""

    def apply(image, draws):
        above = tf.cast(image >= draws[0] * factor * 255, tf.float32)
        return image + above * (255 - 2 * image)  # faster than tf.where

    return apply


def auto_contrast(image, draws):
    """Stretches the values of each channel to the whole range."""
    low = tf.reduce_min(tf.reduce_min(image, 0), 0)
    high = tf.reduce_max(tf.reduce_max(image, 0), 0)
    flat = high == low
    scale = tf.where(flat, 1.0, 255 / tf.where(flat, 1.0, high - low))
    return _clip(per_channel(image, scale, -tf.where(flat, 0.0, low * scale)))


def per_channel(image, scale, offset):
    """Multiplies the channels by `scale` and adds `offset`, each of shape (3,)."""
    # TensorFlow broadcasts a row in a fraction of the time that it takes for a pixel.
    shape = tf.shape(image)
    scale, offset = (tf.tile(values, shape[1:2]) for values in (scale, offset))
    rows = tf.reshape(image, (shape[0], shape[1] * 3)) * scale + offset
    return tf.reshape(rows, shape)


def _clip(image):
    return tf.clip_by_value(image, 0.0, 255.0)


def _grid(image):
    """Returns the rows (height, 1) and columns (1, width) of the pixels."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
    return tf.range(height)[:, None], tf.range(width)[None]


def _rotation(degrees):
    angle = degrees * math.pi / 180
    sine, cosine = tf.sin(angle), tf.cos(angle)
    return (cosine, -sine), (sine, cosine)


def _interpolated(image, matrix, offset):
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


def _sampled(image, rows, columns, fill):
    """Returns the nearest pixels of positions (height, width).

    In a graph, tf.gather takes a fifth of the time of an interpolation by
    ImageProjectiveTransformV3.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    border = tf.pad(image, ((1, 1), (1, 1), (0, 0)), constant_values=fill)

    def nearest(positions, side):
        positions = tf.clip_by_value(positions, -1.0, tf.cast(side, tf.float32))
        return tf.cast(positions + 1.5, tf.int32)  # of the border, rounded

    index = nearest(rows, height) * (width + 2) + nearest(columns, width)
    return tf.gather(tf.reshape(border, (-1, 3)), index)
