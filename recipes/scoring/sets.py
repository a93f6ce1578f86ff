"""Opens the images and labels that models are scored on.

image_set = sets.find("imagenet_r")     # published, or any of tensorflow-datasets
image_set = sets.find("photos/")        # a folder of class folders, or a CSV
image_set = sets.find("digits")         # built-in test images
found = sets.find_training("cifar100", most=65_000)     # None without training images
"""

import dataclasses
import functools
import hashlib
import os
from pathlib import Path

import numpy as np
from training import training_data

from kerasvit import data
from kerasvit.data import SUFFIXES, IndexedImages, StreamedImages

from . import catalogue

AS_IN_TRAINING = ", divided as for a training"


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Labelled images.

    Attributes:
        name: Name in the tables.
        images: `Images`, whose own labels do not matter.
        labels: For each image an array of the indices of its classes; most have one,
            and with `several` perhaps none.
        label_names: Names of the classes.
        restricted: Indices of the classes that occur, if they are less than
            `label_names`; None: all.
        sampled: Numbers in the whole set of the images, if they are a sample.
        several: Whether an image may have several labels, all of which count.
    """

    name: str
    images: data.Images
    labels: list[np.ndarray]
    label_names: list[str]
    restricted: tuple[int, ...] | None = None
    sampled: np.ndarray | None = None
    several: bool = False

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


def find(
    name: str,
    shard: tuple[int, int] = (0, 1),
    channels: int = 3,
    task: str = "single_label",
) -> ImageSet:
    """Opens a set.

    Args:
        name: A folder of class folders (of its `test` or `validation` folder, if it has
            one), a CSV (its test or validation images, if it has a column `split`), a
            name of `names.BUILT_IN`, or a name or alias of `catalogue.py`, or another
            data set of tensorflow-datasets.
        shard, channels: As for `kerasvit.data.from_folder`.
        task: As for `kerasvit.data.from_table`; several labels are those of a table.

    Raises:
        ValueError: There is no such set, or it cannot be read, or it has no images with
            these channels, or no several labels.
    """
    if task == "multilabel":
        return _table(Path(os.path.expanduser(name)), shard, channels)
    if Path(os.path.expanduser(name)).exists():
        return _folder(Path(os.path.expanduser(name)), shard, channels)
    _check_rgb(name, channels)
    if name in data.BUILT_IN:
        dataset = data.built_in(name)
        return of_dataset(name, dataset)
    published = catalogue.find(name)
    if published is None:
        return of_dataset(name, data.from_tfds(name))
    return of_published(published)


def of_dataset(name: str, dataset: data.LabelledImages) -> ImageSet:
    """Returns the test images of a dataset."""
    images, names = dataset.test, dataset.class_names
    if images.has_several_labels:
        labels = [np.flatnonzero(row) for row in images.labels]
        return ImageSet(name, images, labels, names, several=True)
    return ImageSet(name, images, [*images.labels[:, None]], names)


def find_unlabelled(
    name: str, shard: tuple[int, int], channels: int, option: str
) -> ImageSet:
    """Opens images of no class: all below a folder, of a table, or of a set.

    Args:
        name, shard, channels: As for `find`.
        option: Name of the setting, for errors.

    Raises:
        ValueError: There are no such images.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        files = sorted(f for f in data.files_in(path) if f.suffix.lower() in SUFFIXES)
    elif path.is_file():
        files = [row.file for row in data.read_table(path, "multilabel", False).rows]
    else:
        return find(name, shard, channels)
    if not files:
        raise ValueError(f"`{option}`: {name} holds no images.")
    process, processes = shard
    data.check_images(files[process::processes], channels)
    images = IndexedImages(files, np.zeros(len(files)), channels=channels)
    return ImageSet(path.name, images, [*images.labels[:, None]], ["none"])


def _check_rgb(name, channels):
    if channels != 3:
        raise ValueError(
            f"The images of {name} are RGB, and the model takes {channels} channels. "
            "Give a folder of such images."
        )


def _table(path, shard, channels):
    """Returns the images of a table with several labels."""
    if not path.is_file():
        raise ValueError(
            f"`on`: the models have several labels per image, which are read from a "
            f"table, .csv or .jsonl. Received: {path}."
        )
    found = data.read_table(path, "multilabel", training=False)
    parts = {row.part for row in found.rows}
    part = next(x for x in ("test", "validation", "all", "train") if x in parts)
    rows = [row for row in found.rows if row.part == part]
    process, processes = shard
    files = [row.file for row in rows]
    data.check_images(files[process::processes], channels)
    places = {name: i for i, name in enumerate(found.class_names)}
    labels = [np.array([places[x] for x in row.labels], int) for row in rows]
    images = IndexedImages(files, np.zeros(len(files)), channels=channels)
    return ImageSet(path.name, images, labels, found.class_names, several=True)


def _folder(root, shard, channels):
    """Returns the images of a folder or a CSV."""
    found = data.find_files(root)
    named = next(found[part] for part in ("test", "validation", "all") if part in found)
    files = [path for paths in named.values() for path in paths]
    process, processes = shard
    data.check_images(files[process::processes], channels)
    counts = [len(paths) for paths in named.values()]
    labels = np.repeat(np.arange(len(named)), counts)
    images = IndexedImages(files, labels, channels=channels)
    return ImageSet(root.name, images, [*images.labels[:, None]], list(named))


def of_published(published: catalogue.Published) -> ImageSet:
    """Opens a published set."""
    builder = data.tfds_builder(published.tfds)
    examples = records(builder, published.split, {published.label: True})
    # Records of ReaL have lists of several lengths.
    labels = examples.map(lambda example: example[published.label])
    labels = [np.atleast_1d(each) for each in labels.as_numpy_iterator()]
    images = examples.map(lambda example: (example["image"], 0))
    classes_of = published.classes_of or published.tfds
    return ImageSet(
        published.tfds,
        StreamedImages(images, builder.info.features["image"].decode_example),
        labels,
        list(published.label_names or class_names(classes_of)),
        published.restricted,
    )


def records(builder, split: str, features: dict):
    """Returns the examples of a split, a `tf.data.Dataset`, with encoded images.

    Args:
        builder: Result of `kerasvit.data.tfds_builder`.
        split: Name of the split.
        features: Other features that are read: {name: True, or {part of it: True}}.
    """
    from tensorflow_datasets import decode

    decoders = decode.PartialDecoding(
        {"image": True, **features}, decoders={"image": decode.SkipDecoding()}
    )
    return builder.as_dataset(split=split, decoders=decoders)


@functools.cache
def class_names(name: str) -> list[str]:
    """Returns the class names of a data set, which need not be prepared."""
    import tensorflow_datasets

    return list(tensorflow_datasets.builder(name).info.features["label"].names)


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """Labelled images of a set to train on and to test on.

    Attributes:
        train, validation: `Images`; without validation images None, and a part of
            `train` takes their place.
        test: `ImageSet`, whose images are not among the others.
        split: How they were divided, for a message.
        all_train: Number of training images of which `train` has the first, or a
            sample.
    """

    train: data.Images
    validation: data.Images | None
    test: ImageSet
    split: str
    all_train: int

    @property
    def text(self) -> str:
        """A sentence about the numbers of images."""
        of_all = f" of {self.all_train:,}" if self.all_train > len(self.train) else ""
        held = f", {len(self.validation):,} validation" if self.validation else ""
        return (
            f"{self.test.name}: {len(self.train):,}{of_all} training{held} and "
            f"{len(self.test.labels):,} test images{self.split}."
        )


def find_training(
    name: str,
    most: int,
    images: int | None = None,
    shard: tuple[int, int] = (0, 1),
    channels: int = 3,
) -> TrainingSet | None:
    """Opens a set; returns None for a set of tensorflow-datasets without "train".

    A folder without `test/`, a CSV and a built-in set are split as for
    trainings, so that the test images are those of a training. Of tensorflow-datasets,
    all of "train" is training images, as in big_vision, except what serves as the test
    images of a set that has no others.

    Args:
        name: As for `find`.
        most: Maximum number of training images. Those of tensorflow-datasets, which are
            stored in random order, are the first: 65,000 of ImageNet are those of
            big_vision. Of other sets they are a sample, stratified by class.
        images: As for `ImageSet.sample`, of the test images.
        shard, channels: As for `kerasvit.data.from_folder`.

    Raises:
        ValueError: As for `find`.
    """
    path, split = Path(os.path.expanduser(name)), AS_IN_TRAINING
    if not path.exists():
        _check_rgb(name, channels)
    if path.exists():
        options = {"shard": shard, "channels": channels}
        dataset, name = training_data.from_path(path, **options), path.name
    elif name in data.BUILT_IN:
        dataset = data.built_in(name)
    else:
        dataset, split = _tfds(catalogue.ALIASES.get(name, name)), ""
    if dataset is None:
        return None
    validation = None if dataset.validation is dataset.test else dataset.validation
    return TrainingSet(
        first(dataset.train.images, most),
        validation and first(validation, most),
        of_dataset(name, dataset).sample(images),
        split,
        len(dataset.train),
    )


def _tfds(name):
    """Returns a dataset of tensorflow-datasets, or None.

    Its test images stand for the validation images, too, unless it has both.
    """
    if name in catalogue.SETS and not catalogue.SETS[name].train:
        return None
    builder = data.tfds_builder(name)
    # Builders under tfds.testing.mock_data do not list their splits.
    splits = list(builder.info.splits) or ["train", "test"]
    if "train" not in splits:
        return None
    found = data.from_tfds(builder)
    if found.test_name == "test" and "validation" in splits:
        return found
    first = found.train.images
    stored = first.stored.concatenate(found.validation.stored)
    train = data.TrainingImages(StreamedImages(stored, first.decode))
    return dataclasses.replace(found, train=train, validation=found.test)


def first(images: data.Images, most: int) -> data.Images:
    """Returns at most so many images: of a stream the first, of files a sample."""
    if len(images) <= most:
        return images
    if isinstance(images, IndexedImages):  # files are in the order of the classes
        return images.sample(most, seed=0)
    return StreamedImages(images.stored.take(most), images.decode)
