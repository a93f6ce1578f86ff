"""Opens the images and labels that models are scored on.

[image_set] = sets.find("imagenet_r")     # published, or any of tensorflow-datasets
[image_set] = sets.find("photos/")        # a folder of class folders, or a CSV
[image_set] = sets.find("digits")         # built-in test images
"""

import dataclasses
import functools
import hashlib
import os
from pathlib import Path

import numpy as np

from kerasvit import data
from kerasvit.data import IndexedImages, StreamedImages, tfds

from . import catalogue


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Labelled images.

    Attributes:
        name: Name in the tables.
        images: `Images`, whose own labels do not matter.
        labels: For each image an array of the indices of its classes; most have one.
        label_names: Names of the classes.
        restricted: Indices of the classes that occur, if they are less than
            `label_names`; None: all.
        sampled: Numbers in the whole set of the images, if they are a sample.
    """

    name: str
    images: data.Images
    labels: list[np.ndarray]
    label_names: list[str]
    restricted: tuple[int, ...] | None = None
    sampled: np.ndarray | None = None

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the images in the whole set (count,)."""
        return np.arange(len(self.labels)) if self.sampled is None else self.sampled

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the images: `digest_of`."""
        return digest_of(self.images)

    def sample(self, count: int | None) -> "ImageSet":
        """Returns a set of `count` of the images, always the same; None: all."""
        if count is None or count >= len(self.labels):
            return self
        numbers = np.sort(
            np.random.default_rng(0).permutation(len(self.labels))[:count]
        )
        return dataclasses.replace(
            self,
            images=self.images.part(numbers),
            labels=[self.labels[i] for i in numbers],
            sampled=self.numbers[numbers],
        )


def digest_of(images: data.Images) -> str:
    """Returns a digest by which sets of one name and equal labels are told apart.

    It is of the names and sizes of files; of other images, of the pixels of the first.
    """
    found = hashlib.sha256()
    if isinstance(images, IndexedImages) and not images.is_array:
        for path in images.items:
            found.update(os.fsencode(os.path.basename(path)))
            found.update(f" {os.path.getsize(path)}\n".encode())
        return found.hexdigest()
    for pixels, _ in images.once().take(1).as_numpy_iterator():
        found.update(pixels.tobytes())
    return found.hexdigest()


def find(name: str, shard: tuple[int, int] = (0, 1)) -> ImageSet:
    """Opens a set.

    Args:
        name: A folder of class folders (of its `test` or `validation` folder, if it has
            one), a CSV (its test or validation images, if it has a column `split`), a
            name of `names.BUILT_IN`, or a name or alias of `catalogue.py`, or another
            data set of tensorflow-datasets.
        shard: As for `kerasvit.data.from_folder`.

    Raises:
        ValueError: There is no such set, or it cannot be read.
    """
    if Path(name).expanduser().exists():
        return _folder(Path(name).expanduser(), shard)
    if name in data.BUILT_IN:
        dataset = data.built_in(name)
        return of_dataset(name, dataset)
    published = catalogue.find(name)
    if published is None:
        return of_dataset(name, data.from_tfds(name))
    return of_published(published)


def of_dataset(name: str, dataset: data.LabelledImages) -> ImageSet:
    """Returns the test images of a dataset."""
    labels = [np.array([label]) for label in dataset.test.labels]
    return ImageSet(name, dataset.test, labels, dataset.class_names)


def _folder(root, shard):
    """Returns the images of a folder or a CSV."""
    found = data.find_files(root)
    named = next(found[part] for part in ("test", "validation", "all") if part in found)
    files = [path for paths in named.values() for path in paths]
    process, processes = shard
    data.check_images(files[process::processes])
    counts = [len(paths) for paths in named.values()]
    labels = np.repeat(np.arange(len(named)), counts)
    images = IndexedImages(files, np.arange(len(files)))
    return ImageSet(root.name, images, [np.array([i]) for i in labels], list(named))


def of_published(published: catalogue.Published) -> ImageSet:
    """Opens a published set."""
    builder = tfds.prepared(published.tfds)
    stored = tfds.encoded(builder, published.split, "image", published.label)
    # Records of ReaL have lists of several lengths.
    labels = stored.map(lambda image, label: label).as_numpy_iterator()
    labels = [np.atleast_1d(each) for each in labels]
    images = stored.map(lambda image, label: (image, 0))
    classes_of = published.classes_of or published.tfds
    return ImageSet(
        published.name,
        StreamedImages(images, builder.info.features["image"].decode_example),
        labels,
        list(published.label_names or tfds.class_names(classes_of)),
        published.restricted,
    )
