"""Mixes the images and labels of neighbouring rows of a batch.

A batch has its images in a random order, so that rows 2j and 2j + 1 are a random pair.
A process that makes some rows of a batch needs no more than one further image at each
end. The last row of an odd batch stays as it is.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from kerasvit.types import Tensor

from .shards import Rows


def mix_up(alpha: float) -> Callable:
    """Returns a function that adds images, Zhang et al. 2018, arXiv 1710.09412.

    Args:
        alpha: Of the distribution Beta(alpha, alpha) of the shares, one for each image.
    """

    def mix(
        images: Tensor, others: Tensor, shares: Tensor, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        return _blend(images, others, shares), shares

    return _mixing(alpha, mix)


def cut_mix(alpha: float) -> Callable:
    """Returns a function that pastes rectangles, Yun et al. 2019, arXiv 1905.04899.

    Args:
        alpha: As for `mix_up`, for the share of an image that is kept.
    """

    def mix(
        images: Tensor, others: Tensor, shares: Tensor, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        sides = tf.cast(tf.shape(images)[1:3], tf.float32)
        lengths = tf.round(tf.sqrt(1 - shares)[:, None] * sides)  # (count, 2)
        first = tf.floor(draws * (sides - lengths + 1))
        pasted = []
        for axis in range(2):
            place = tf.range(sides[axis])[None]
            start, length = first[:, axis, None], lengths[:, axis, None]
            pasted.append((place >= start) & (place < start + length))
        mask = tf.cast(pasted[0][:, :, None] & pasted[1][:, None], tf.float32)
        kept = 1 - tf.reduce_prod(lengths / sides, axis=1)
        return _blend(images, others, 1 - mask[..., None]), kept

    return _mixing(alpha, mix)


def mix_one_of(
    mixings: Sequence[Callable],
    images: Tensor,
    labels: Tensor,
    rows: Rows,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mixes the images and labels of a batch by one of the functions.

    Args:
        mixings: Functions of this module; one of them is drawn for the batch.
        images: float32 (count, height, width, 3), the rows that `rows.read` names.
        labels: float32 (count, classes).
        rows: `shards.Rows` of this process.
        seed: int64 (2,), of the global batch.

    Returns:
        Images and labels of the rows that `rows.kept` names.
    """
    seeds = tf.unstack(tf.random.split(seed, 2))
    drawn = tf.random.stateless_uniform((), seeds[0], 0, len(mixings), tf.int32)
    cases = [lambda f=f: f(images, labels, rows, seeds[1]) for f in mixings]
    images, labels = cases[0]() if len(cases) == 1 else tf.switch_case(drawn, cases)
    return images[rows.kept], labels[rows.kept]


def _mixing(alpha: float, mix: Callable) -> Callable:
    """Returns a function (images, labels, rows, seed) that mixes rows with partners."""

    def apply(
        images: Tensor, labels: Tensor, rows: Rows, seed: Tensor
    ) -> tuple[Tensor, Tensor]:
        # The numbers of the global batch are drawn, and those of the rows are taken.
        seeds = tf.unstack(tf.random.split(seed, 3))
        pair = [
            tf.random.stateless_gamma((rows.batch_size,), each, alpha)
            for each in seeds[:2]
        ]
        shares = (pair[0] / (pair[0] + pair[1]))[rows.read]
        draws = tf.random.stateless_uniform((rows.batch_size, 2), seeds[2])[rows.read]
        partners = tf.constant(rows.partners)
        images, kept = mix(images, tf.gather(images, partners), shares, draws)
        return images, _blend(labels, tf.gather(labels, partners), kept[:, None])

    return apply


def _blend(values: Tensor, others: Tensor, share: Tensor) -> Tensor:
    share = tf.reshape(share, (*share.shape, *[1] * (len(values.shape) - share.ndim)))
    return others + share * (values - others)
