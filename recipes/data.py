"""Images with labels for the recipes: found, split and checked.

    dataset = data.built_in("digits")          of `built_in.py`, no download
    dataset = data.folder("photos/")           a folder of class folders
    dataset = data.tfds("oxford_iiit_pet")     a name of tensorflow-datasets

`batches.py` makes batches of them.
"""

import dataclasses
import functools
import os

import numpy as np
from batches import Indexed, Streamed
from built_in import SOURCES
from command_line import existing_folder
from folders import check_images, classes, given_splits
from names import check_dataset

LOOKED_AT = 50  # images, for their kind
SHARES = {"validation": 0.1, "test": 0.2}  # of every class, where no split is given


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Three sets of images and the names of their classes.

    Attributes:
        train, validation, test: `Indexed` or `Streamed`.
        label_names: One a class, in the order of the labels.
        test_name: What the test images are called where they come from; "validation"
            where there are no others, and then they are the same.
    """

    train: object
    validation: object
    test: object
    label_names: list[str]
    test_name: str = "test"

    @property
    def counts(self):
        """How many images are in each."""
        parts = ("train", "validation", "test")
        return {part: len(getattr(self, part)) for part in parts}

    @functools.cached_property
    def kind(self):
        """ "drawings" where a few training images are all grey, else "photographs"."""
        few = self.train
        if isinstance(few, Indexed):  # a folder is in the order of its classes
            few = few.sample(LOOKED_AT, seed=0)
        for pixels, _ in few.once().take(LOOKED_AT).as_numpy_iterator():
            if np.any(pixels != pixels[..., :1]):
                return "photographs"
        return "drawings"


def find(dataset: str, folder_path: str | None = None) -> Dataset:
    """The images of a folder, else those of a name: built-in or tensorflow-datasets'.

    Raises:
        ValueError: As `folder` and `tfds`.
    """
    if folder_path:
        return folder(folder_path)
    return built_in(dataset) if dataset in SOURCES else tfds(dataset)


@functools.cache
def built_in(name: str) -> Dataset:
    """Images of `built_in.py`, always split in the same way."""
    source = SOURCES[name]
    images, labels, names = source.read()
    end = len(labels) - source.given
    parts = split(labels[:end], source.shares)
    if source.given:
        parts["test"] = np.arange(end, len(labels))
    sets = {part: Indexed(images[i], labels[i]) for part, i in parts.items()}
    return Dataset(**sets, label_names=names)


def folder(path: str | os.PathLike) -> Dataset:
    """A folder of class folders of images, each of which is read once to check it.

    Either `path/class/image.jpg`: a tenth of every class is kept for validation and a
    fifth for the test, always the same. Or `path/train/class/image.jpg`, and the same
    in `validation` (`val`, `valid`), `test` or both: without the former, a tenth of
    train is; without the latter, the validation images are the test.

    Raises:
        ValueError: There is no such folder, or too little in it, or a damaged file.
    """
    root = existing_folder(path)
    where = given_splits(root) or {"all": root}
    found = {part: classes(place) for part, place in where.items()}
    first = next(iter(found))
    names = list(found[first])
    if len(names) < 2:
        raise ValueError(
            f"{where[first]} holds one class only, {names[0]!r}. To learn to tell "
            "apart, it needs a folder for each of two or more."
        )
    for part, named in found.items():
        if wrong := set(names) ^ set(named):
            raise ValueError(
                f"{where[part]} and {where[first]} must hold the same class folders. "
                f"In one alone: {', '.join(sorted(wrong))}."
            )
    files = [files for named in found.values() for files in named.values()]
    check_images([path for paths in files for path in paths])
    sets = {part: _indexed(named) for part, named in found.items()}
    if "validation" not in sets:
        shares = {name: share for name, share in SHARES.items() if name not in sets}
        sets |= _parts(sets.pop(first), shares, names)
    test_name = "test" if "test" in sets else where["validation"].name
    sets.setdefault("test", sets["validation"])
    return Dataset(**sets, label_names=names, test_name=test_name)


def tfds(name) -> Dataset:
    """A data set of tensorflow-datasets, downloaded and prepared where it is not yet.

    Tested is its "test" split, or "validation" where that has no labels. Without a
    third split, the last 2 % of "train" validate, as in vit_jax.

    Args:
        name: As `tfds.load` takes it, `name/config:version`; or a builder.

    Raises:
        ValueError: It is unknown, cannot be downloaded, or is no image classification.
    """
    import tensorflow_datasets

    builder = name
    if isinstance(name, str):
        check_dataset(name)
        try:
            builder = tensorflow_datasets.builder(name)
            builder.download_and_prepare()
        except Exception as error:  # of servers, disks, checksums: there are many
            raise ValueError(
                f"`dataset`: {name} could not be downloaded and prepared. Do it with "
                "internet and copy its folder of ~/tensorflow_datasets; or give images "
                f"with --data. {type(error).__name__}: {error!s:.300}"
            ) from error
    info = builder.info
    features = tensorflow_datasets.features
    image, label = info.supervised_keys or ("image", "label")
    kinds = {name: type(feature) for name, feature in info.features.items()}
    if (kinds.get(image), kinds.get(label)) != (features.Image, features.ClassLabel):
        raise ValueError(
            f"`dataset`: {info.name} is no image classification. It holds: "
            f"{', '.join(kinds)}."
        )
    # As stored, so that a large buffer can be shuffled.
    decoders = {image: tensorflow_datasets.decode.SkipDecoding()}
    if isinstance(name, str):  # pets' masks are not read; ImageFolder cannot do it
        wanted = {image: True, label: True}
        decoders = tensorflow_datasets.decode.PartialDecoding(wanted, decoders=decoders)

    def images(which):
        encoded = builder.as_dataset(split=which, decoders=decoders)
        encoded = encoded.map(lambda example: (example[image], example[label]))
        return Streamed(encoded, info.features[image].decode_example)

    parts = _tfds_parts(builder, label)
    dataset = Dataset(
        **{part: images(which) for part, which in parts.items()},
        label_names=list(info.features[label].names),
        test_name=parts["test"],
    )
    if not all(dataset.counts.values()):
        raise ValueError(f"`dataset`: too few images, {dataset.counts} in {parts}.")
    return dataset


def split(labels, shares=SHARES, names=None, seed=0) -> dict[str, np.ndarray]:
    """Indices of a random split in which every class has the same shares.

    Args:
        labels: Number of the class of each example.
        shares: Name → share of every class, at least one example of each.
        names: Of the classes, for messages.
        seed: Apart from that of the training, so that all trainings share one test.

    Returns:
        Name → indices, with the rest as "train".
    """
    labels = np.asarray(labels)
    parts = {name: [] for name in ("train", *shares)}
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        if len(places) <= len(shares):
            name = names[label] if names else label
            raise ValueError(
                f"A class needs {len(shares) + 1} images or more to be split into "
                f"{', '.join(parts)}. Class {name} has {len(places)}."
            )
        places = np.random.default_rng([seed, label]).permutation(places)
        counts = [max(1, round(share * len(places))) for share in shares.values()]
        *taken, rest = np.split(places, np.cumsum(counts))
        for name, some in zip(parts, [rest, *taken], strict=True):
            parts[name].append(some)
    return {name: np.sort(np.concatenate(places)) for name, places in parts.items()}


def _indexed(classes):
    items = [path for files in classes.values() for path in files]
    counts = [len(files) for files in classes.values()]
    return Indexed(items, np.repeat(np.arange(len(counts)), counts))


def _parts(images, shares, names):
    parts = split(images.labels, shares, names).items()
    items = {name: [images.items[i] for i in places] for name, places in parts}
    return {name: Indexed(items[name], images.labels[p]) for name, p in parts}


def _tfds_parts(builder, label):
    """Part → split of tensorflow-datasets."""
    # Nothing is known of the splits under tfds.testing.mock_data.
    names = list(builder.info.splits) or ["train", "test"]
    if "train" not in names:
        came = ", ".join(names)
        raise ValueError(f"`dataset`: {builder.info.name} has no 'train' but {came}.")
    held_out = [name for name in ("test", "validation") if name in names]
    if held_out[:1] == ["test"]:
        first = next(iter(builder.as_dataset(split="test").take(1)))
        if int(first[label]) < 0:  # ImageNet's has no labels
            held_out.remove("test")
    if not held_out:
        chosen = "train[:80%]", "train[80%:90%]", "train[90%:]"
    elif len(held_out) == 2:
        chosen = "train", "validation", "test"
    else:
        chosen = "train[:98%]", "train[98%:]", held_out[0]
    return dict(zip(("train", "validation", "test"), chosen, strict=True))
