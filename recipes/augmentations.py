"""Random augmentations of training images, by the names that the settings use.

`operations.py` has the changes of an image, `crops.py` the random crop and `mixing.py`
what mixes two images.
"""

import dataclasses
from collections.abc import Callable

import operations
import tensorflow as tf
from mixing import cut_mix, mix_up
from operations import BLACK, flip, one_of, shift, translate


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of training images.

    Args:
        area: Smallest share of the image's area that a random crop keeps, in (0, 1]; 1
            disables the crop.
        changes: Functions of `operations.py`, applied in order to each image, of the
            model's image size with values from 0 to 255.
        mixing: Functions of `mixing.py`. One of them is drawn for each batch.
    """

    area: float = 1.0
    changes: tuple[Callable, ...] = ()
    mixing: tuple[Callable, ...] = ()

    def draws(self, seed, number, batch_size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the random numbers of a batch.

        The changes of version 0.1 drew them in this way: its trainings continue.

        Args:
            seed: Seed of the training.
            number: Number of the batch in the training, int64.
            batch_size: Number of images of the whole batch.

        Returns:
            Seeds of the crops, int32 (batch_size, 2), and numbers in [0, 1) for each
            change, (batch_size, at least 1, `operations.DRAWS`).
        """

        def key(i):
            first = tf.cast(seed, tf.uint32) * 1_000_003 + tf.cast(i, tf.uint32)
            return tf.cast(tf.stack([first, tf.cast(number, tf.uint32)]), tf.int32)

        crops = tf.random.stateless_uniform(
            (batch_size, 2), key(0), None, None, "int32"
        )
        count = max(len(self.changes), 1)  # `unbatch` fails for none
        columns = [
            tf.random.stateless_uniform((batch_size,), key(i + 1))
            for i in range(count * operations.DRAWS)
        ]
        draws = tf.stack(columns, axis=1)
        return crops, tf.reshape(draws, (batch_size, count, operations.DRAWS))


def rand_augment(magnitude: float) -> tuple[Callable, Callable]:
    """Returns RandAugment as two draws from ten operations.

    The strength of each operation is `magnitude` tenths of its maximum. They
    approximate Cubuk et al. 2020, arXiv 1909.13719. Equalization is omitted because it
    takes as long as all others together.
    """
    strength = magnitude / 10
    color = min(0.9 * strength, 1)
    drawn = one_of(
        operations.shear(0.3 * strength),
        translate(0.45 * strength, operations.GREY),
        operations.rotate(30 * strength),
        operations.brightness(color),
        operations.contrast(color),
        operations.saturation(color),
        operations.sharpness(color),
        operations.posterize(4),
        operations.solarize(color),
        operations.auto_contrast,
    )
    return drawn, drawn


# Shifts by up to 4 of 32 pixels; new pixels are black.
CIFAR = (flip, translate(0.125, BLACK))

AUGMENTATIONS = {
    "none": Augmentation(),
    "shift": Augmentation(changes=(shift(0.05, 5.4),)),  # text stays readable: no flip
    "photo": Augmentation(area=0.05, changes=(flip,)),  # vit_jax/input_pipeline.py
    "photo_mixed": Augmentation(  # big_vision configs/mlp_mixer_i1k.py
        area=0.05, changes=(flip, *rand_augment(15)), mixing=(mix_up(0.5),)
    ),
    "cifar": Augmentation(changes=CIFAR),
    "cifar_mixed": Augmentation(  # xxxnell/how-do-vits-work configs/cifar100_vit.yaml
        changes=(*CIFAR, *rand_augment(9)), mixing=(mix_up(1.0), cut_mix(0.8))
    ),
}
