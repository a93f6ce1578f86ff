"""Data sets of tensorflow-datasets: prepares them, and reads their records.

builder = tfds_builder("oxford_iiit_pet")
records = encoded(builder, "train", "image", "label")
"""

import difflib
from typing import Any

import tensorflow as tf


def tfds_builder(name: str) -> Any:
    """Returns the builder of a data set, which is downloaded and prepared if needed.

    Args:
        name: Name for `tfds.load`, `name/config:version`.

    Raises:
        ValueError: The data set is unknown, or cannot be downloaded.
    """
    import tensorflow_datasets

    try:
        found = tensorflow_datasets.builder(name)
        found.download_and_prepare()
    except tensorflow_datasets.core.DatasetNotFoundError as error:
        known = tensorflow_datasets.list_builders(with_community_datasets=False)
        near = difflib.get_close_matches(name.split("/")[0], known, n=3, cutoff=0.5)
        close = ", ".join(near or known[:20])
        raise ValueError(f"`name`: there is no {name!r}. Close: {close}.") from error
    except Exception as error:  # many kinds: servers, disks, checksums
        raise ValueError(
            f"{name} could not be downloaded and prepared. Prepare it with internet "
            "and copy its folder of ~/tensorflow_datasets, or use images of a folder. "
            f"{type(error).__name__}: {error!s:.300}"
        ) from error
    return found


def encoded(builder: Any, split: str, image: str, label: str) -> tf.data.Dataset:
    """Returns (encoded image, label) of a split, a `tf.data.Dataset`.

    Images are not decoded, so that a shuffle buffer can be large.

    Args:
        builder: Builder.
        split: Name of the split.
        image, label: Names of the features.
    """
    from tensorflow_datasets import ImageFolder, decode

    decoders = {image: decode.SkipDecoding()}
    if not isinstance(builder, ImageFolder):  # which does not support it
        # Skips other features, such as the masks of pets.
        decoders = decode.PartialDecoding({image: True, label: True}, decoders=decoders)
    stored = builder.as_dataset(split=split, decoders=decoders)
    return stored.map(lambda example: (example[image], example[label]))


def splits_of(builder: Any, label: str, share: float | None) -> dict[str, str]:
    """Returns {part: name of the split}: see `from_tfds`.

    Args:
        builder: Builder.
        label: Name of the label's feature.
        share: Share of the images that are for validation, if the set has none.
    """
    # Builders under tfds.testing.mock_data do not list their splits.
    names = list(builder.info.splits) or ["train", "test"]
    if "train" not in names:
        raise ValueError(
            f"{builder.info.name} has no split 'train', only {', '.join(names)}."
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
