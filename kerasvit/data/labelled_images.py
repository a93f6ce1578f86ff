"""Finds, checks and splits the labelled images of a recipe.

    dataset = data.built_in("digits")          from `built_in.py`, no download
    dataset = data.folder("photos/")           a folder of class folders
    dataset = data.folder("labels.csv")        a table of paths and labels
    dataset = data.tfds("oxford_iiit_pet")     a dataset of tensorflow-datasets

`batches.py` makes batches of the images.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import tfds as prepared
from .folders import check_images, classes, existing_data, given_splits
from .images import Indexed, Streamed
from .installed_sets import SOURCES
from .splits import SHARES, split, with_validation
from .subsets import share_of
from .tables import read

SAMPLE = 50  # images that represent a dataset


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Three sets of images and the names of their classes.

    Attributes:
        train, validation, test: `Indexed` or `Streamed`.
        label_names: Names of the classes, in the order of the labels.
        test_name: Name of the test split in the source; that of the validation split if
            `test` is `validation`, for sources without test images.
        whole: Number of training images of which `train` is a share; None: `train` has
            all.
    """

    train: object
    validation: object
    test: object
    label_names: list[str]
    test_name: str = "test"
    whole: int | None = None

    @property
    def counts(self):
        """{part: number of images}."""
        parts = ("train", "validation", "test")
        return {part: len(getattr(self, part)) for part in parts}

    @functools.cached_property
    def kind(self):
        """Kind of images: "drawings" if a sample is grey, else "photographs"."""
        colored = (np.any(pixels != pixels[..., :1]) for pixels in self.sample())
        return "photographs" if any(colored) else "drawings"

    def sample(self) -> Iterator[np.ndarray]:
        """Yields `SAMPLE` training images, uint8 (height, width, channels)."""
        images = self.train
        if isinstance(images, Indexed):  # a folder is sorted by class
            images = images.sample(SAMPLE, seed=0)
        for pixels, _ in images.once().take(SAMPLE).as_numpy_iterator():
            yield pixels

    def of_share(self, share: float, seed: int) -> "Dataset":
        """Returns the dataset with a share of its training images: `find`."""
        if share == 1:
            return self
        train = share_of(self.train, share, seed, self.label_names)
        return dataclasses.replace(self, train=train, whole=len(self.train))


def find(
    dataset: str,
    folder_path: str | None = None,
    share: float = 1.0,
    seed: int = 0,
    *,
    validation_share: float | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Dataset:
    """Returns the dataset of a folder, or a built-in or tensorflow-datasets dataset.

    Args:
        dataset: Name of a dataset, used without a folder.
        folder_path: Folder of class folders, or a CSV, or None.
        share: Share of the training images of each class, in (0, 1].
        seed: Seed of the share.
        validation_share: Share of each class for validation, where the data has no
            validation images; None: that of the kind of data.
        shard: As for `folder`.

    Raises:
        ValueError: As for `folder`, `tfds` and `subsets.share_of`.
    """
    if folder_path:
        found = folder(folder_path, shard, validation_share)
    else:
        make = built_in if dataset in SOURCES else tfds
        found = make(dataset, validation_share)
    return found.of_share(share, seed)


@functools.cache
def built_in(name: str, validation_share: float | None = None) -> Dataset:
    """Returns a dataset of `built_in.py`, with a fixed split."""
    source = SOURCES[name]
    images, labels, names = source.read()
    end = len(labels) - source.test_images
    parts = split(labels[:end], with_validation(source.shares, validation_share))
    if source.test_images:
        parts["test"] = np.arange(end, len(labels))
    sets = {part: Indexed(images[i], labels[i], i) for part, i in parts.items()}
    return Dataset(**sets, label_names=names)


def folder(
    path: str | os.PathLike,
    shard: tuple[int, int] = (0, 1),
    validation_share: float | None = None,
) -> Dataset:
    """Returns the dataset of a folder or of a CSV, after reading its images.

    For `path/class/image.jpg`, a fixed tenth of every class is used for validation and
    a fixed fifth for the test. For `path/train/class/image.jpg`, the same folders are
    expected in `validation` (`val`, `valid`), `test` or both. Without validation, a
    tenth of train is used; without test, the validation images are the test images.
    The column `split` of a CSV has the meaning of these folders.

    Args:
        path: Folder, or CSV as for `label_tables.read`.
        shard: (i, n): reads every n-th image, from the i-th, to find damaged files, for
            process i of n, which together read all.
        validation_share: Instead of a tenth for validation.

    Raises:
        ValueError: The folder does not exist, has fewer than two classes or too few
            images, or contains a damaged file; the share is given although there are
            validation images.
    """
    root = existing_data(path)
    if root.is_file():
        found = read(root)
        splits = dict.fromkeys(found, root.parent)
        given = {part: part for part in found}
    else:
        splits = given_splits(root) or {"all": root}
        found = _class_folders(splits)
        given = {part: place.name for part, place in splits.items()}
    if "validation" in found and validation_share is not None:
        raise ValueError(
            f"`validation_share`: {path} has validation images of its own, and no "
            "others are used. Leave it out."
        )
    first = "all" if "all" in found else "train"
    names = list(found[first])
    files = [files for named in found.values() for files in named.values()]
    process, processes = shard
    check_images([path for paths in files for path in paths][process::processes])
    sets = {part: _indexed(named, names, splits[part]) for part, named in found.items()}
    if "validation" not in sets:
        shares = {name: share for name, share in SHARES.items() if name not in sets}
        shares = with_validation(shares, validation_share)
        sets |= _parts(sets.pop(first), shares, names)
    test_name = "test" if "test" in sets else given["validation"]
    sets.setdefault("test", sets["validation"])
    return Dataset(**sets, label_names=names, test_name=test_name)


def _class_folders(splits):
    """Returns {part: {class: files}} of folders, which must hold the same classes."""
    found = {part: classes(place) for part, place in splits.items()}
    first = next(iter(found))
    names = list(found[first])
    if len(names) < 2:
        raise ValueError(
            f"{splits[first]} holds one class only, {names[0]!r}. A classifier "
            "needs two or more class folders."
        )
    for part, named in found.items():
        if wrong := set(names) ^ set(named):
            raise ValueError(
                f"{splits[part]} and {splits[first]} must hold the same class folders. "
                f"Only in one: {', '.join(sorted(wrong))}."
            )
    return found


def tfds(name, validation_share: float | None = None) -> Dataset:
    """Returns a dataset of tensorflow-datasets; downloads and prepares it if needed.

    The test images are the split "test", or "validation" if "test" has no labels.
    Without a third split, the last 2 % of "train" are used for validation, as in
    vit_jax.

    Args:
        name: Name for `tfds.load`, `name/config:version`; or a builder.
        validation_share: Instead of the 2 %, in whole percents.

    Raises:
        ValueError: The dataset is unknown, cannot be downloaded, or is not for image
            classification.
    """
    import tensorflow_datasets

    builder = prepared.builder(name) if isinstance(name, str) else name
    info = builder.info
    features = tensorflow_datasets.features
    image, label = info.supervised_keys or ("image", "label")
    kinds = {name: type(feature) for name, feature in info.features.items()}
    if (kinds.get(image), kinds.get(label)) != (features.Image, features.ClassLabel):
        raise ValueError(
            f"`dataset`: {info.name} is no image classification dataset. It holds: "
            f"{', '.join(kinds)}."
        )

    def images(split_name):
        encoded = prepared.encoded(builder, split_name, image, label)
        return Streamed(encoded, info.features[image].decode_example)

    parts = _tfds_parts(builder, label, validation_share)
    dataset = Dataset(
        **{part: images(split_name) for part, split_name in parts.items()},
        label_names=list(info.features[label].names),
        test_name=parts["test"],
    )
    if not all(dataset.counts.values()):
        raise ValueError(f"`dataset`: too few images, {dataset.counts} in {parts}.")
    return dataset


def _indexed(classes, names, root):
    listed = [classes.get(name, []) for name in names]
    items = [path for files in listed for path in files]
    counts = [len(files) for files in listed]
    names = [Path(os.path.relpath(path, root)).as_posix() for path in items]
    return Indexed(items, np.repeat(np.arange(len(counts)), counts), names)


def _parts(images, shares, names):
    parts = split(images.labels, shares, names)
    return {name: images.part(indices) for name, indices in parts.items()}


def _tfds_parts(builder, label, share):
    """Returns {part: name of the split in tensorflow-datasets}."""
    # Builders under tfds.testing.mock_data do not list their splits.
    names = list(builder.info.splits) or ["train", "test"]
    if "train" not in names:
        raise ValueError(
            f"`dataset`: {builder.info.name} has no split 'train', only "
            f"{', '.join(names)}."
        )
    held_out = [name for name in ("test", "validation") if name in names]
    if held_out[:1] == ["test"]:
        first = next(iter(builder.as_dataset(split="test").take(1)))
        if int(first[label]) < 0:  # ImageNet's has no labels
            held_out.remove("test")
    if len(held_out) == 2:
        if share is not None:
            raise ValueError(
                f"`validation_share`: {builder.info.name} has validation images of its "
                "own. Leave it out."
            )
        chosen = "train", "validation", "test"
    else:
        default, end = (0.02, 100) if held_out else (0.1, 90)
        first = end - max(1, round(100 * (default if share is None else share)))
        if first < 1:
            raise ValueError(
                f"`validation_share`: {share:g} leaves no training images. Give less "
                f"than {end / 100:g}."
            )
        test = held_out[0] if held_out else "train[90%:]"
        chosen = f"train[:{first}%]", f"train[{first}%:{end}%]", test
    return dict(zip(("train", "validation", "test"), chosen, strict=True))
