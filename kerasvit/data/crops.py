"""Random crops of training images, decoded and cropped in one operation.

The crop is resized by the bilinear kernel, as in vit_jax/input_pipeline.py and
big_vision's `decode_jpeg_and_inception_crop`. Evaluation images are those of the
transform, exactly.
"""

from collections.abc import Callable

import tensorflow as tf

from kerasvit.types import Tensor

from .images import Images

ATTEMPTS = 100  # at a crop that fits, as in Google's code
RATIOS = (1, 2, 4, 8)  # by which JPEG can shrink while it decodes


def random_crop(
    images: Images,
    item: Tensor,
    area: float,
    size: tuple[int, int],
    antialias: bool,
    seed: Tensor,
) -> Tensor:
    """Returns a random crop of an image, float32 (*size, C) with values from 0 to 255.

    Args:
        images: The images.
        item: Item of one of them.
        area: Smallest share of the image's area in the crop.
        size: (height, width) of the result.
        antialias: As for `_resized`.
        seed: int32 (2,), of this crop.
    """

    def window(shape: Tensor) -> Tensor:
        return _window(shape, area, seed)

    return _resized(images, item, window, size, antialias)


def crop_of_resized(
    images: Images,
    item: Tensor,
    larger: tuple[int, int],
    size: tuple[int, int],
    antialias: bool,
    seed: Tensor,
) -> Tensor:
    """Returns a random crop of the resized image, as in google-research/big_transfer.

    Args:
        images, item, size, antialias, seed: As for `random_crop`.
        larger: (height, width) before the crop, whatever the ratio of the image.
    """

    def whole(shape: Tensor) -> Tensor:
        return tf.concat([[0, 0], shape[:2]], axis=0)

    image = _resized(images, item, whole, larger, antialias)
    return tf.image.stateless_random_crop(image, (*size, images.channels), seed)


def _resized(
    images: Images,
    item: Tensor,
    window_of: Callable[[Tensor], Tensor],
    size: tuple[int, int],
    antialias: bool,
) -> Tensor:
    """Returns a window of an image, resized, float32 (*size, C).

    A large window of a JPEG file is first shrunk by its decoder, by a power of two, and
    one of another file is resized with antialiasing, so that no pixel is left out.

    Args:
        images, item: As for `random_crop`.
        window_of: Function of the shape to (top, left, height, width), int32.
        size: (height, width) of the result.
        antialias: False: neither of the two, as in Google's code.
    """

    def from_pixels() -> Tensor:
        pixels = images.whole(item)
        top, left, height, width = tf.unstack(window_of(tf.shape(pixels)))
        crop = pixels[top : top + height, left : left + width]
        # Grey images of tensorflow-datasets have one channel.
        crop = tf.broadcast_to(crop, (height, width, images.channels))
        return tf.image.resize(crop, size, antialias=antialias)

    def from_jpeg() -> Tensor:
        shape = tf.image.extract_jpeg_shape(encoded)
        window = window_of(shape)

        def decode(ratio: int) -> Tensor:
            # The accurate DCT is that of Pillow; other decoding options agree.
            return tf.io.decode_and_crop_jpeg(
                encoded,
                window // ratio,
                channels=3,
                ratio=ratio,
                dct_method="INTEGER_ACCURATE",
            )

        if antialias:
            cases = [lambda ratio=ratio: decode(ratio) for ratio in RATIOS]
            shrunk = [
                tf.reduce_all(window[2:] >= n * tf.constant(size)) for n in RATIOS
            ]
            crop = tf.switch_case(tf.reduce_sum(tf.cast(shrunk[1:], tf.int32)), cases)
        else:
            crop = decode(1)
        # As float32, the resize takes half the time.
        return tf.image.resize(tf.cast(crop, tf.float32), size)

    encoded = images.encoded(item)
    if encoded is None:
        return from_pixels()
    return tf.cond(images.is_plain_jpeg(encoded), from_jpeg, from_pixels)


def _window(shape: Tensor, area: float, seed: Tensor) -> Tensor:
    """Returns (top, left, height, width) of a crop, int32 (Szegedy et al. 2015).

    The aspect ratio is 3:4 to 4:3. If no attempt fits, the whole image is the crop.
    """
    start, lengths, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),  # there are no objects
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(area, 1.0),
        max_attempts=ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([start[:2], lengths[:2]], axis=0)
