"""Opens published sets of corrupted images.

group = corrupted_sets.find("c", kinds.PUBLISHED)           # or "cifar10_corrupted"
group = corrupted_sets.find("CIFAR-100-C/", kinds.KINDS)    # .npy files
image_set = group.open("fog", 3)
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from kerasvit.data import StreamedImages, tfds

from . import catalogue, sets
from .cifar_classes import CIFAR10, CIFAR100
from .kinds import SEVERITIES, chosen

LABELS = "labels.npy"


@dataclasses.dataclass(frozen=True)
class Group:
    """The same images with corruptions of several kinds and severities.

    Attributes:
        name: Name in the tables.
        clean: Name of the set of these images without corruption, or "".
        kinds: The corruptions.
        missing: {corruption: reason} of those that were asked for and are not there.
        opener: Function of a kind and a severity that returns a `sets.ImageSet`.
        images: At most so many images of each; None: all.
    """

    name: str
    clean: str
    kinds: tuple[str, ...]
    missing: dict[str, str]
    opener: Callable[[str, int], sets.ImageSet]
    images: int | None = None

    @functools.cached_property
    def first(self) -> sets.ImageSet:
        """The images of the first kind with severity 1."""
        found = self.opener(self.kinds[0], SEVERITIES[0]).sample(self.images)
        return dataclasses.replace(found, name=self.name)

    def open(self, kind: str, severity: int) -> sets.ImageSet:
        """Returns the images of a kind and a severity.

        Raises:
            ValueError: Their labels are not those of `first`, in the same order.
        """
        found = self.opener(kind, severity).sample(self.images)
        if list(map(list, found.labels)) != list(map(list, self.first.labels)):
            raise ValueError(
                f"`on`: {kind} of severity {severity} of {self.name} must have the "
                f"labels of {self.kinds[0]}, in the same order. Prepare the set again."
            )
        return found

    def sample(self, count: int | None) -> "Group":
        """Returns `count` of the images, always the same; None: all."""
        return dataclasses.replace(self, images=count)


def is_group(name: str) -> bool:
    """Whether a name is that of a `Group`: of `catalogue.CORRUPTED`, or a folder."""
    if (path := Path(name).expanduser()).exists():
        return (path / LABELS).is_file()
    return catalogue.ALIASES.get(name, name) in catalogue.CORRUPTED


def find_all(names: Sequence[str], kinds: Sequence[str]) -> dict[str, Group]:
    """Returns the groups among names of sets.

    Args:
        names: Names of groups and of other sets.
        kinds: Names for `kinds.chosen`; none are the published ones.

    Raises:
        ValueError: As for `find`.
    """
    wanted = chosen(kinds or ("published",))
    return {name: find(name, wanted) for name in names if is_group(name)}


def find(name: str, kinds: Sequence[str]) -> Group:
    """Opens a set.

    Args:
        name: Name or alias of `catalogue.CORRUPTED`; or a folder of `labels.npy`, class
            indices (5 n,), and a file `KIND.npy` for each kind, uint8 (5 n, height,
            width, 3), with n images of severity 1, then the same of severity 2, and so
            on: CIFAR-10-C and CIFAR-100-C of github.com/hendrycks/robustness.
        kinds: The corruptions that are wanted.

    Raises:
        ValueError: None of the kinds is there, or a file is not as above.
    """
    folder = Path(name).expanduser()
    group = _folder(folder, kinds) if folder.exists() else _published(name, kinds)
    if not group.kinds:
        reasons = "; ".join(f"{kind}: {why}" for kind, why in group.missing.items())
        raise ValueError(f"`on`: {group.name} has none of the corruptions. {reasons}.")
    return group


def _published(name, kinds):
    published = catalogue.CORRUPTED[catalogue.ALIASES.get(name, name)]
    renamed = catalogue.RENAMED.get(published.tfds, {})

    def opened(kind, severity):
        config = f"{published.tfds}/{renamed.get(kind, kind)}_{severity}"
        return sets.of_published(dataclasses.replace(published, tfds=config))

    missing = {}
    for kind in kinds:
        try:
            for severity in SEVERITIES:
                config = f"{published.tfds}/{renamed.get(kind, kind)}_{severity}"
                tfds.prepared(config)
        except ValueError as error:
            missing[kind] = str(error)
    found = tuple(kind for kind in kinds if kind not in missing)
    clean = catalogue.CLEAN[published.tfds]
    return Group(published.tfds, clean, found, missing, opened)


def _folder(root, kinds):
    labels = _labels(root / LABELS)
    is_hundred = "100" in root.name or labels.max() >= len(CIFAR10)
    clean, names = ("cifar100", CIFAR100) if is_hundred else ("cifar10", CIFAR10)
    if labels.min() < 0 or labels.max() >= len(names):
        raise ValueError(
            f"`on`: {root / LABELS} must have classes of {clean}, 0 to "
            f"{len(names) - 1}. Received: {labels.min()} to {labels.max()}."
        )
    files = {kind: root / f"{kind}.npy" for kind in kinds}
    missing = {
        kind: f"there is no file {path}"
        for kind, path in files.items()
        if not path.is_file()
    }
    arrays = {
        kind: _pixels(path, len(labels))
        for kind, path in files.items()
        if kind not in missing
    }

    def opened(kind, severity):
        pixels = np.split(arrays[kind], len(SEVERITIES))[severity - 1]
        return sets.ImageSet(
            root.name, _streamed(pixels), [np.array([i]) for i in labels], list(names)
        )

    return Group(root.name, clean, tuple(arrays), missing, opened)


def _labels(path):
    """Returns the labels of the images of one severity, after a check."""
    labels = _read(path)
    versions = len(SEVERITIES)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % versions:
        raise ValueError(
            f"`on`: {path} must hold class indices of {versions} severities, integers "
            f"({versions} n,). Received: {labels.dtype} {labels.shape}."
        )
    blocks = labels.reshape(versions, -1)
    if not labels.size or (blocks != blocks[0]).any():
        raise ValueError(
            f"`on`: {path} must repeat the labels of the images {versions} times, once "
            "for each severity."
        )
    return blocks[0]


def _pixels(path, count):
    """Returns the images of a file, which are read when they are used."""
    pixels, expected = _read(path), len(SEVERITIES) * count
    is_right = pixels.ndim == 4 and pixels.shape[3] == 3 and pixels.dtype == "uint8"
    if not is_right or len(pixels) != expected:
        raise ValueError(
            f"`on`: {path} must hold uint8 images ({expected}, height, width, 3), as "
            f"{LABELS} has {expected} labels. Received: {pixels.dtype} {pixels.shape}."
        )
    return pixels


def _read(path):
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:  # of NumPy, for a damaged file
        raise ValueError(f"`on`: {path} cannot be read as .npy: {error}.") from error


def _streamed(pixels):
    def decoded(number):
        image = tf.numpy_function(
            lambda i: np.asarray(pixels[i]), [number], tf.uint8, stateful=False
        )
        return tf.ensure_shape(image, pixels.shape[1:])

    numbers = tf.data.Dataset.range(len(pixels))
    return StreamedImages(numbers.map(lambda i: (i, tf.cast(i, tf.int32))), decoded)
