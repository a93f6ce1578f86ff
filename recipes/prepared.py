"""Prepares data sets with tensorflow-datasets, and reads their records."""

import functools

from command.names import check_dataset


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
