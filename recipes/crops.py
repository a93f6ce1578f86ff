"""Random crops of training images, decoded and cropped in one operation.

The crop is resized by the bilinear kernel, as in vit_jax/input_pipeline.py and
big_vision's `decode_jpeg_and_inception_crop`. Evaluation images are those of the
transform, exactly.
"""

import math

import tensorflow as tf

ATTEMPTS = 10
DRAWS = 2 * ATTEMPTS + 2  # random numbers of a crop
RATIOS = (1, 2, 4, 8)  # by which JPEG can shrink while it decodes


def random_crop(images, item, area: float, size, antialias: bool, draws):
    """Returns a random crop of an image, float32 (*size, 3) with values from 0 to 255.

    A large crop of a JPEG file is first shrunk by its decoder, by a power of two, and
    one of another file is resized with antialiasing, so that no pixel is left out.

    Args:
        images: `readers.Indexed` or `readers.Streamed`.
        item: Item of its datasets.
        area: Smallest share of the image's area in the crop.
        size: (height, width) of the result.
        antialias: False: neither of the two, as in Google's code.
        draws: `DRAWS` random numbers in [0, 1).
    """

    def from_pixels():
        pixels = images.whole(item)
        top, left, height, width = _window(tf.shape(pixels), area, draws)
        crop = pixels[top : top + height, left : left + width]
        crop = tf.broadcast_to(crop, (height, width, 3))  # grey images have 1 channel
        return tf.image.resize(crop, size, antialias=antialias)

    def from_jpeg():
        shape = tf.image.extract_jpeg_shape(encoded)
        window = _window(shape, area, draws)
        larger = [
            (window[2] >= ratio * size[0]) & (window[3] >= ratio * size[1])
            for ratio in RATIOS[1:]
        ]

        def decode(ratio):
            # The accurate DCT is that of Pillow; other decoding options agree.
            return tf.io.decode_and_crop_jpeg(
                encoded,
                tf.stack(window) // ratio,
                channels=3,
                ratio=ratio,
                dct_method="INTEGER_ACCURATE",
            )

        if antialias:
            cases = [lambda ratio=ratio: decode(ratio) for ratio in RATIOS]
            crop = tf.switch_case(tf.reduce_sum(tf.cast(larger, tf.int32)), cases)
        else:
            crop = decode(1)
        # As float32, the resize takes half the time.
        return tf.image.resize(tf.cast(crop, tf.float32), size)

    encoded = images.encoded(item)
    if encoded is None:
        return from_pixels()
    return tf.cond(images.is_plain_jpeg(encoded), from_jpeg, from_pixels)


def _window(shape, area, draws):
    """Returns (top, left, height, width) of a crop, int32 (Szegedy et al. 2015).

    The aspect ratio is 3:4 to 4:3. If no attempt fits, the whole image is the crop.
    """
    height, width = tf.unstack(tf.cast(shape[:2], tf.float32))
    target = height * width * (area + (1 - area) * draws[:ATTEMPTS])
    aspect = tf.exp((2 * draws[ATTEMPTS:-2] - 1) * math.log(4 / 3))
    tall, wide = tf.round(tf.sqrt(target / aspect)), tf.round(tf.sqrt(target * aspect))
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    first, found = tf.argmax(fits), tf.reduce_any(fits)
    window = []
    for side, sides, draw in ((height, tall, -2), (width, wide, -1)):
        length = tf.where(found, sides[first], side)
        start = tf.minimum(tf.floor(draws[draw] * (side - length + 1)), side - length)
        window.append((start, length))
    (top, height), (left, width) = window
    return [tf.cast(n, tf.int32) for n in (top, left, height, width)]
