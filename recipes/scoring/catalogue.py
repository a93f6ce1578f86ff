"""The published data sets of evaluations, as data.

    catalogue.SETS["imagenet_r"].protocol

This module imports neither Keras nor TensorFlow, so that a command is parsed first.
"""

import dataclasses

from .cifar_classes import CIFAR10
from .imagenet_subsets import IMAGENET_A, IMAGENET_R

VALIDATION = "ILSVRC2012_img_val.tar"
MANUAL = (
    f"put {VALIDATION}, from image-net.org (needs an account), into "
    "~/tensorflow_datasets/downloads/manual/"
)


@dataclasses.dataclass(frozen=True)
class Published:
    """A published set, of one or several data sets of tensorflow-datasets.

    Attributes:
        tfds: Name in tensorflow-datasets; its configurations follow a "/".
        images: Number of images.
        download: What is downloaded, or which file goes where by hand.
        protocol: What counts as right, and of which classes.
        split: Name of the split.
        label: Name of the feature that has the class, or a list of classes.
        classes_of: Data set whose class names the classes have; None: its own.
        restricted: Indices of the classes among those of `classes_of`, if there are
            less; None: all.
        train: Whether it has training images.
        manual: Name of a file that must be downloaded by hand, or "".
        label_names: Names of the classes, if tensorflow-datasets does not have them.
    """

    tfds: str
    images: int
    download: str
    protocol: str = "top-1 of all classes"
    split: str = "test"
    label: str = "label"
    classes_of: str | None = None
    restricted: tuple[int, ...] | None = None
    train: bool = False
    manual: str = ""
    label_names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """Name in the tables."""
        return self.tfds


IMAGENET = {"classes_of": "imagenet2012"}
BOTH = "top-1 of all 1,000 classes, and of the 200 that occur, as its authors'"
OF_KINDS = "mean top-1 of 15 kinds of corruption and 5 severities of each"
SETS = {
    each.tfds: each
    for each in (
        Published(
            "imagenet2012",
            50_000,
            MANUAL,
            split="validation",
            train=True,
            manual=VALIDATION,
            **IMAGENET,
        ),
        Published(
            "imagenet2012_real",
            50_000,
            f"{MANUAL}; the labels are downloaded",
            "right if the prediction is among the labels of the image; the 3,163 "
            "images without a label are left out",
            split="validation",
            label="real_label",
            manual=VALIDATION,
            **IMAGENET,
        ),
        Published("imagenet_v2/matched-frequency", 10_000, "1.3 GB", **IMAGENET),
        Published("imagenet_v2/threshold-0.7", 10_000, "1.2 GB", **IMAGENET),
        Published("imagenet_v2/topimages", 10_000, "1.2 GB", **IMAGENET),
        Published(
            "imagenet_r",
            30_000,
            "2.2 GB",
            f"{BOTH}; arXiv 2106.01548 seems to have the first, timm has the second",
            restricted=IMAGENET_R,
            **IMAGENET,
        ),
        Published(
            "imagenet_a", 7_500, "0.7 GB", BOTH, restricted=IMAGENET_A, **IMAGENET
        ),
        Published("imagenet_sketch", 50_889, "7.6 GB", **IMAGENET),
        Published("cifar10", 10_000, "0.2 GB", train=True),
        Published("cifar100", 10_000, "0.2 GB", train=True),
    )
}
# Sets of which tensorflow-datasets has a configuration for each kind and severity.
CORRUPTED = {
    each.tfds: each
    for each in (
        Published(
            "imagenet2012_corrupted",
            50_000,
            f"{MANUAL}; 75 configurations are prepared from it, those of snow and "
            "motion_blur with ImageMagick under the name `imagemagick`",
            f"{OF_KINDS}; mCE against AlexNet",
            split="validation",
            manual=VALIDATION,
            **IMAGENET,
        ),
        Published("cifar10_corrupted", 10_000, "2.9 GB", OF_KINDS, label_names=CIFAR10),
    )
}
RENAMED = {  # {set: {kind: name of its configurations}}
    "cifar10_corrupted": {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
}
CLEAN = {"imagenet2012_corrupted": "imagenet2012", "cifar10_corrupted": "cifar10"}
ALIASES = {
    "imagenet": "imagenet2012",
    "real": "imagenet2012_real",
    "v2": "imagenet_v2/matched-frequency",
    "imagenet_v2": "imagenet_v2/matched-frequency",
    "r": "imagenet_r",
    "a": "imagenet_a",
    "sketch": "imagenet_sketch",
    "c": "imagenet2012_corrupted",
}


def find(name: str) -> Published | None:
    """Returns the published set of a name or an alias; None if there is none.

    A configuration of a corrupted set, such as imagenet2012_corrupted/fog_1, is a set.
    """
    name = ALIASES.get(name, name)
    stem, _, config = name.partition("/")
    if config and stem in CORRUPTED:
        return dataclasses.replace(CORRUPTED[stem], tfds=name)
    return SETS.get(name)
