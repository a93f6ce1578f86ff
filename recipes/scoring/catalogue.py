"""The published data sets, corruptions and results of evaluations, as data.

    catalogue.SETS["imagenet_r"].protocol
    catalogue.RESULTS["ViTB16/sam"]["imagenet2012"]     # 79.9
    catalogue.COSTS["ViTB16/sam"]   # parameters, multiply-adds and speed, as text

This module imports neither Keras nor TensorFlow, so that a command is parsed first.
"""

import dataclasses
import importlib.util
import tomllib
from pathlib import Path

from command.names import check_name

_CLASSES = tomllib.loads(
    Path(__file__).with_name("classes.toml").read_text(encoding="utf-8")
)
CIFAR10, CIFAR100 = (tuple(_CLASSES[x].split()) for x in ("cifar10", "cifar100"))
IMAGENET_A, IMAGENET_R = (
    tuple(map(int, _CLASSES[x].split())) for x in ("imagenet_a", "imagenet_r")
)
VALIDATION = "ILSVRC2012_img_val.tar"
MANUAL = (
    f"put {VALIDATION}, from image-net.org (needs an account), into "
    "~/tensorflow_datasets/downloads/manual/"
)
# Corruptions of the papers' means, in the order of their tables: Hendrycks and
# Dietterich 2019, arXiv 1903.12261, section 3.
PUBLISHED = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
KINDS = (*PUBLISHED, "gaussian_blur", "saturate", "spatter", "speckle_noise")
GROUPS = {"all": KINDS, "published": PUBLISHED}
SEVERITIES = (1, 2, 3, 4, 5)
PACKAGES = {"cv2": "opencv-python-headless", "skimage": "scikit-image"}
# Chen et al. 2022: models trained from scratch on ImageNet with SAM, 224 × 224 pixels.
# ImageNet-R is of all 1,000 classes: timm's results of the same weights, of 200
# classes, are 40.1 and not 26.4 for ViT-B/16. ImageNet-C is the mean accuracy of all
# corruptions and severities. The paper has no multiply-adds.
PAPER = "arXiv 2106.01548, Table 2"
COLUMNS = (
    *("imagenet2012", "imagenet2012_real", "imagenet_v2/matched-frequency"),
    *("imagenet_r", "imagenet2012_corrupted"),
)
_WITH_SAM = {
    "ViTS16": (78.1, 84.1, 65.6, 24.7, 53.0),
    "ViTB32": (73.6, 80.3, 60.0, 24.0, 50.7),
    "ViTB16": (79.9, 85.2, 67.5, 26.4, 56.5),
    "MixerB32": (72.4, 79.0, 58.0, 22.8, 46.2),
    "MixerB16": (77.4, 83.5, 63.9, 24.7, 48.8),
}
RESULTS = {  # {name of the weights: {set: top-1 in %}}
    f"{variant}/sam": dict(zip(COLUMNS, row, strict=True))
    for variant, row in _WITH_SAM.items()
}
_SPEEDS = {  # million parameters, images per second of a TPU core
    "ViTS16": (22, 2043),
    "ViTB32": (88, 2805),
    "ViTB16": (87, 863),
    "MixerB32": (60, 4209),
    "MixerB16": (59, 1390),
}
COSTS = {
    f"{variant}/sam": (f"{parameters}", "", f"{speed:,} (TPU core)")
    for variant, (parameters, speed) in _SPEEDS.items()
}
CORRUPTED_MEAN = "corrupted (mean of the 15 published kinds)"


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


def chosen_kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the corruptions that names or `GROUPS` select, in the order of `KINDS`.

    Raises:
        ValueError: A name is unknown.
    """
    for name in names:
        check_name("corrupt", name, [*GROUPS, *KINDS])
    selected = {kind for name in names for kind in GROUPS.get(name, (name,))}
    return tuple(kind for kind in KINDS if kind in selected)


def check_installed() -> None:
    """Raises a `ValueError` if a package that corrupts images is not installed."""
    for module, package in PACKAGES.items():
        if not importlib.util.find_spec(module):
            raise ValueError(
                f"`corrupt`: {package}, which corrupts images, is not installed. "
                'Install it: pip install -e ".[evaluate]".'
            )


def published_column(heading: str) -> str:
    """Returns the name in `RESULTS` of a column of the tables."""
    corrupted = COLUMNS[-1]
    return corrupted if heading == f"{corrupted}, {CORRUPTED_MEAN}" else heading
