"""Random augmentations of training images, by name.

    augment = AUGMENTATIONS["photo"]
    augment = dataclasses.replace(augment, mixup=0.2)

`operations.py` has the changes of an image, `crops.py` the random crops and `mixing.py`
what mixes two images.
"""

import dataclasses
import difflib
from collections.abc import Callable

import tensorflow as tf

from kerasvit.arguments import ArgumentError
from kerasvit.types import Tensor

from . import operations
from .mixing import cut_mix, mix_up
from .operations import BLACK, flip, one_of, shift, translate


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of training images, in the order in which they are applied.

    Args:
        repeats: Number of times that an image is in a batch, each time changed anew
            (Hoffer et al. 2020, arXiv 1901.09335).
        area: Smallest share of the image's area that a random crop keeps, in (0, 1]; 1
            disables the crop.
        resize: Height in pixels to which an image is resized, for a random crop of the
            model's size; the width has the ratio of the model's. None: `margin`.
        margin: The same as a multiple of the model's size, at least 1; 1 disables it.
        moves: Functions of `operations.py`, applied in order to each image, of the
            model's image size with values from 0 to 255.
        magnitude: Of `rand_augment`; None disables it. With 0 it is not without effect.
        colours: Whether `rand_augment` changes colours, of images with three channels.
        erasing: Probability of random erasing.
        mixup, cutmix: alpha of `mix_up` and `cut_mix`; 0 disables it. With both, one is
            drawn for each batch.
    """

    repeats: int = 1
    area: float = 1.0
    resize: int | None = None
    margin: float = 1.0
    moves: tuple[Callable, ...] = ()
    magnitude: float | None = None
    colours: bool = True
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def changes(self) -> tuple[Callable, ...]:
        """The moves and RandAugment: functions of `operations.py`."""
        if self.magnitude is None:
            return self.moves
        return (*self.moves, *rand_augment(self.magnitude, self.colours))

    @property
    def changes_colours(self) -> bool:
        """Whether RandAugment changes colours."""
        return self.magnitude is not None and self.colours

    @property
    def mixing(self) -> tuple[Callable, ...]:
        """Functions of `mixing.py`."""
        both = (mix_up, self.mixup), (cut_mix, self.cutmix)
        return tuple(mix(alpha) for mix, alpha in both if alpha)

    def larger(self, size: tuple[int, int]) -> tuple[int, int] | None:
        """Returns (height, width) before a random crop of the model's size, or None.

        Raises:
            ValueError: `resize` is smaller than the model's height.
        """
        height, width = size
        if self.resize is None and self.margin == 1:
            return None
        resized = self.resize or round(self.margin * height)
        if resized < height:
            raise ValueError(
                f"`resize` must be at least {height} pixels, the model's image size, "
                f"which is cropped from it. Received: {resized}."
            )
        return resized, round(resized * width / height)

    def draws(
        self, seed: int, number: Tensor, batch_size: int
    ) -> tuple[Tensor, Tensor]:
        """Returns the random numbers of a batch.

        The changes of version 0.1 drew them in this way: its trainings continue.

        Args:
            seed: Seed of the training.
            number: Number of the batch in the training, int64.
            batch_size: Number of images of the whole batch.

        Returns:
            Seeds of the crops and of erasing, int32 (batch_size, 2), and numbers in
            [0, 1) for each change, (batch_size, at least 1, `operations.DRAWS`).
        """

        def key(i: int) -> Tensor:
            first = tf.cast(seed, tf.uint32) * 1_000_003 + tf.cast(i, tf.uint32)
            return tf.cast(tf.stack([first, tf.cast(number, tf.uint32)]), tf.int32)

        seeds = tf.random.stateless_uniform(
            (batch_size, 2), key(0), None, None, "int32"
        )
        count = max(len(self.changes), 1)  # `unbatch` fails for none
        columns = [
            tf.random.stateless_uniform((batch_size,), key(i + 1))
            for i in range(count * operations.DRAWS)
        ]
        draws = tf.stack(columns, axis=1)
        return seeds, tf.reshape(draws, (batch_size, count, operations.DRAWS))


def find_augmentation(augment: str | Augmentation | None) -> Augmentation:
    """Returns an augmentation by its name in `AUGMENTATIONS`; None: "none".

    Raises:
        ArgumentError: There is none of this name.
    """
    if isinstance(augment, Augmentation):
        return augment
    name = "none" if augment is None else augment
    if isinstance(name, str) and name in AUGMENTATIONS:
        return AUGMENTATIONS[name]
    near = difflib.get_close_matches(str(name), AUGMENTATIONS, n=3)
    raise ArgumentError(
        f"`augment`: there is no {name!r}. Close: {', '.join(near or AUGMENTATIONS)}. "
        "Or give a `kerasvit.data.Augmentation`.",
        "augment",
    )


def rand_augment(magnitude: float, colours: bool = True) -> tuple[Callable, Callable]:
    """Returns RandAugment as two draws from ten operations, or three without colours.

    The strength of each operation is `magnitude` tenths of its maximum. They
    approximate Cubuk et al. 2020, arXiv 1909.13719. Equalization is omitted because it
    takes as long as all others together. Solarization, sharpness and others have an
    effect with magnitude 0, too, as in big_vision.
    """
    strength = magnitude / 10
    color = min(0.9 * strength, 1)
    moves = (
        operations.shear(0.3 * strength),
        translate(0.45 * strength, operations.GREY),
        operations.rotate(30 * strength),
    )
    of_colours = (
        operations.brightness(color),
        operations.contrast(color),
        operations.saturation(color),
        operations.sharpness(color),
        operations.posterize(4),
        operations.solarize(color),
        operations.auto_contrast,
    )
    drawn = one_of(*moves, *(of_colours if colours else ()))
    return drawn, drawn


# Shifts by up to 4 of 32 pixels; new pixels are black.
CIFAR = (flip, translate(0.125, BLACK))
PHOTO = Augmentation(area=0.05, moves=(flip,))  # vit_jax/input_pipeline.py
# timm's crops: of facebookresearch/deit, microsoft/Swin-Transformer, and others.
TIMM = Augmentation(area=0.08, moves=(flip,), magnitude=9, erasing=0.25)
SWIN = dataclasses.replace(TIMM, mixup=0.8, cutmix=1.0)
AUGREG = {  # arXiv 2106.10270, big_vision configs/vit_i1k.py: (magnitude, mixup)
    "none": (None, 0.0),
    "light1": (0, 0.0),
    "light2": (10, 0.2),
    "medium1": (15, 0.2),
    "medium2": (15, 0.5),
    "strong1": (20, 0.5),
    "strong2": (20, 0.8),
}

#: Name → `Augmentation`, of which `batches` takes one by its name.
AUGMENTATIONS = {
    "none": Augmentation(),
    "shift": Augmentation(moves=(shift(0.05, 5.4),)),  # text stays readable: no flip
    "photo": PHOTO,
    # big_vision configs/mlp_mixer_i1k.py
    "photo_mixed": dataclasses.replace(PHOTO, magnitude=15, mixup=0.5),
    "cifar": Augmentation(moves=CIFAR),
    # xxxnell/how-do-vits-work configs/cifar100_vit.yaml and imagenet_vit.yaml
    "cifar_mixed": Augmentation(moves=CIFAR, magnitude=9, mixup=1.0, cutmix=0.8),
    "imagenet_vit": dataclasses.replace(TIMM, mixup=1.0, cutmix=0.8),
    "swin": SWIN,
    "deit": dataclasses.replace(SWIN, repeats=3),
    # google-research/big_transfer
    "resize_crop": Augmentation(margin=8 / 7, moves=(flip,)),
    **{
        f"augreg_{level}": dataclasses.replace(PHOTO, magnitude=magnitude, mixup=alpha)
        for level, (magnitude, alpha) in AUGREG.items()
    },
}
