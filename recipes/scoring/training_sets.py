"""Opens the images that frozen features are compared by: training and test images.

found = training_sets.find("cifar100", most=65_000)   # None without training images
print(found.text)
"""

import dataclasses
from pathlib import Path

from training import training_data

from kerasvit import data
from kerasvit.data import IndexedImages, StreamedImages, tfds

from . import catalogue, sets

AS_IN_TRAINING = ", divided as for a training"


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """Labelled images of a set to train on and to test on.

    Attributes:
        train, validation: `Images`; without validation images None, and a part of
            `train` takes their place.
        test: `sets.ImageSet`, whose images are not among the others.
        split: How they were divided, for a message.
        all_train: Number of training images of which `train` has the first, or a
            sample.
    """

    train: data.Images
    validation: data.Images | None
    test: sets.ImageSet
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


def find(
    name: str,
    most: int,
    images: int | None = None,
    shard: tuple[int, int] = (0, 1),
) -> TrainingSet | None:
    """Opens a set; returns None for a set of tensorflow-datasets without "train".

    A folder without `test/`, a CSV and a built-in set are split as `data.py` does for
    trainings, so that the test images are those of a training. Of tensorflow-datasets,
    all of "train" is training images, as in big_vision, except what serves as the test
    images of a set that has no others.

    Args:
        name: As for `sets.find`.
        most: Maximum number of training images. Those of tensorflow-datasets, which are
            stored in random order, are the first: 65,000 of ImageNet are those of
            big_vision. Of other sets they are a sample, stratified by class.
        images: As for `ImageSet.sample`, of the test images.
        shard: As for `kerasvit.data.from_folder`.

    Raises:
        ValueError: There is no such set, or it cannot be read.
    """
    path, split = Path(name).expanduser(), AS_IN_TRAINING
    if path.exists():
        dataset, name = training_data.from_path(path, shard=shard), path.name
    elif name in data.BUILT_IN:
        dataset = data.built_in(name)
    else:
        dataset, split = _tfds(catalogue.ALIASES.get(name, name)), ""
    if dataset is None:
        return None
    validation = None if dataset.validation is dataset.test else dataset.validation
    return TrainingSet(
        _first(dataset.train.images, most),
        validation and _first(validation, most),
        sets.of_dataset(name, dataset).sample(images),
        split,
        len(dataset.train),
    )


def _tfds(name):
    """Returns a dataset of tensorflow-datasets, or None.

    Its test images stand for the validation images, too, unless it has both.
    """
    if name in catalogue.SETS and not catalogue.SETS[name].train:
        return None
    builder = tfds.prepared(name)
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


def _first(images, most):
    if len(images) <= most:
        return images
    if isinstance(images, IndexedImages):  # files are in the order of the classes
        return images.sample(most, seed=0)
    return StreamedImages(images.stored.take(most), images.decode)
