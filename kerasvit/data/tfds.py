"""Prepares data sets with tensorflow-datasets, and reads their records."""

import difflib
import functools
import os
from pathlib import Path

from .installed_sets import SOURCES


def builder(name: str):
    """Returns the builder of a data set, which is downloaded and prepared if needed.

    Args:
        name: Name for `tfds.load`, `name/config:version`.

    Raises:
        ValueError: The data set is unknown, or cannot be downloaded.
    """
    import tensorflow_datasets

    check_dataset(name)
    try:
        found = tensorflow_datasets.builder(name)
        found.download_and_prepare()
    except Exception as error:  # many kinds: servers, disks, checksums
        raise ValueError(
            f"`dataset`: {name} could not be downloaded and prepared. Prepare it "
            "with internet and copy its folder of ~/tensorflow_datasets, or give "
            f"images with --data. {type(error).__name__}: {error!s:.300}"
        ) from error
    return found


@functools.cache
def class_names(name: str) -> list[str]:
    """Returns the class names of a data set, which need not be prepared."""
    import tensorflow_datasets

    return list(tensorflow_datasets.builder(name).info.features["label"].names)


def encoded(found, split: str, image: str, label: str):
    """Returns (encoded image, label) of a split, a `tf.data.Dataset`.

    Images are not decoded, so that a shuffle buffer can be large.

    Args:
        found: Builder.
        split: Name of the split.
        image, label: Names of the features.
    """
    from tensorflow_datasets import ImageFolder, decode

    decoders = {image: decode.SkipDecoding()}
    if not isinstance(found, ImageFolder):  # which does not support it
        # Skips other features, such as the masks of pets.
        decoders = decode.PartialDecoding({image: True, label: True}, decoders=decoders)
    stored = found.as_dataset(split=split, decoders=decoders)
    return stored.map(lambda example: (example[image], example[label]))


def check_dataset(name: str) -> None:
    """Raises a `ValueError` for a dataset that does not exist.

    Args:
        name: Name of a dataset of `BUILT_IN`, of tensorflow-datasets, or prepared in
            its folder; with or without `/config` and `:version`.
    """
    import tensorflow_datasets  # takes a second; imports TensorFlow later

    known = tensorflow_datasets.list_builders(with_community_datasets=False)
    root = Path(data_location()).expanduser()
    infos = [*root.glob("*/*/dataset_info.json"), *root.glob("*/*/*/dataset_info.json")]
    prepared = sorted({info.relative_to(root).parts[0] for info in infos})
    stem = name.split("/")[0].split(":")[0]
    check_name("dataset", stem, [*SOURCES, *prepared, *known])


def data_location() -> str:
    """Returns the folder or URL of the prepared datasets of tensorflow-datasets."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def check_name(argument: str, name: str, known) -> None:
    """Raises a `ValueError` with close matches if `name` is not in `known`."""
    if name not in known:
        # Matches without case, so that vitb16 is close to ViTB16.
        lower = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
        near = [lower[match] for match in near] or list(known)[:20]
        near = ", ".join(near)
        raise ValueError(f"`{argument}`: there is no {name!r}. Close: {near}.")
