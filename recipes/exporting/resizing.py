"""Resizes and crops photographs in the graph of an exported model, as Pillow does."""

import math

import keras
from keras import ops

import kerasvit

# {kernel: twice the radius}, of Pillow's libImaging/Resample.c
WIDTHS = {"box": 1, "bilinear": 2, "hamming": 2, "bicubic": 4, "lanczos": 6}


class ResizeAndCrop(keras.layers.Layer):
    """Photographs (batch, any height, any width, 3), uint8 → pixels, float32.

    Each side is one product with a matrix of weights, computed for the size of the
    photograph, of the centre that is kept. The values between are rounded as Pillow
    rounds them.

    Args:
        transform: `kerasvit.Preprocessing`, of which the normalisation is left out.
    """

    def __init__(self, transform: kerasvit.Preprocessing, **kwargs):
        super().__init__(**{"dtype": "float32", "autocast": False, **kwargs})
        self.transform = kerasvit.Preprocessing.from_config(transform)

    def get_config(self):
        return {**super().get_config(), "transform": self.transform.to_config()}

    def compute_output_shape(self, shape):
        return (shape[0], *self.transform.size, shape[-1])

    def call(self, photographs):
        size, rounded = self.transform.size, self.transform.antialias
        # Counted, because torch.export makes constants of the sizes that it converts.
        lines = [
            ops.ones_like(line, "int32")
            for line in (photographs[0, :, 0, 0], photographs[0, 0, :, 0])
        ]
        tall, wide = resized(*map(ops.sum, lines), self.transform)
        rows, in_height = weights(lines[0], tall, size[0], self.transform)
        columns, in_width = weights(lines[1], wide, size[1], self.transform)
        # Colours first, while a pixel has 8 bits: the products need no other order.
        x = ops.cast(ops.transpose(photographs, (0, 3, 1, 2)), "float32")
        x = x @ ops.transpose(columns)
        x = rows @ (_whole(x) if rounded else x)
        x = ops.transpose(_whole(x) if rounded else x, (0, 2, 3, 1))
        border = [min(max(round(255 * mean), 0), 255) for mean in self.transform.mean]
        inside = in_height[:, None, None] * in_width[:, None]
        return x + (1 - inside) * ops.convert_to_tensor(border, "float32")


def resized(height, width, transform: kerasvit.Preprocessing):
    """Returns (height, width) to which images are resized before the crop, int32.

    It computes `kerasvit.Preprocessing._resized` of sizes that are known later.
    """
    tall, wide = (math.floor(side / transform.crop) for side in transform.size)
    if transform.mode == "squash":
        return tall + 0 * height, wide + 0 * width
    if transform.mode == "center" and tall == wide:
        short = ops.minimum(height, width)
        return tall * height // short, wide * width // short
    choose = ops.less if transform.mode == "border" else ops.greater
    by_width = choose(height * wide, width * tall)  # and not by height
    return (
        ops.where(by_width, ops.maximum(_ratio(height * wide, width), 1), tall),
        ops.where(by_width, wide, ops.maximum(_ratio(width * tall, height), 1)),
    )


def weights(line, after, side: int, transform: kerasvit.Preprocessing):
    """Returns the weights of the pixels of one side of an image, and what is inside.

    The places are computed in whole numbers, where Pillow has 64 bits.

    Args:
        line: Ones, int32, as many as the side of the photograph has pixels.
        after: Number of pixels of the side when it is resized, int32.
        side: Pixels that the crop keeps.
        transform: Whose kernel is taken.

    Returns:
        Weights (side, len(line)), zeros outside the resized image, and (side,): 1
        within it, and 0 in a border; float32.
    """
    before = ops.sum(line)
    pixels = 2 * ops.cumsum(line) - 1  # twice the place of each
    start = ops.where(after >= side, _ratio(after - side, 2), -((side - after) // 2))
    place = start + ops.arange(side, dtype="int32")
    inside = ops.cast((place >= 0) & (place < after), "float32")
    center = ((2 * place + 1) * before)[:, None]  # twice, times `after`
    if not transform.antialias:  # as tf.image.resize: edges are repeated
        center = ops.clip(center, after, (2 * before - 1) * after)
        found = ops.maximum(1 - ops.abs(_share(pixels * after - center, 2 * after)), 0)
    elif transform.kernel == "nearest":
        found = ops.cast(pixels // 2 == center // (2 * after), "float32")
    else:
        stretch = ops.maximum(before, after)
        found = kernel(_share(pixels * after - center, 2 * stretch), transform.kernel)
        # Pillow leaves out pixels beyond a window of whole pixels.
        reach = WIDTHS[transform.kernel] * stretch
        first = (center - reach + after) // (2 * after)
        last = (center + reach + after) // (2 * after)
        within = (pixels // 2 >= first) & (pixels // 2 < last)
        found = found * ops.cast(within, "float32")
        total = ops.sum(found, axis=1, keepdims=True)
        found = found / ops.where(total == 0, 1, total)  # 0: outside the image
    return found * inside[:, None], inside


def _share(part, whole):
    return ops.cast(part, "float32") / ops.cast(whole, "float32")


def _ratio(a, b):
    """Returns the ratio of whole numbers, halves to even as Python's `round`."""
    whole = a // b
    twice = 2 * (a - whole * b)
    up = (twice > b) | ((twice == b) & (whole % 2 == 1))
    return whole + ops.cast(up, "int32")


def kernel(x, name: str):
    """Returns the weights of one of Pillow's kernels at distances in its radius."""
    if name == "box":
        return ops.cast((x > -0.5) & (x <= 0.5), "float32")
    size = ops.abs(x)
    if name == "bilinear":
        return ops.maximum(1 - size, 0)
    if name == "bicubic":  # with a = -0.5
        near = (1.5 * size - 2.5) * size * size + 1
        far = ((-0.5 * size + 2.5) * size - 4) * size + 2
        return ops.where(size < 1, near, ops.where(size < 2, far, 0 * size))
    if name == "hamming":
        found = _sinc(x) * (0.54 + 0.46 * ops.cos(math.pi * x))
        return ops.where(size < 1, found, 0 * size)
    return ops.where(size < 3, _sinc(x) * _sinc(x / 3), 0 * size)


def _sinc(x):
    safe = ops.where(x == 0, 0 * x + 1, x) * math.pi
    return ops.where(x == 0, 0 * x + 1, ops.sin(safe) / safe)


def _whole(x):
    """Returns pixels as Pillow rounds them: halves up, from 0 to 255."""
    return ops.clip(ops.floor(x + 0.5), 0, 255)
