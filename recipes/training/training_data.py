"""Images of a training: finds them, checks them, and makes the batches of `fit`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command import names, paths
from devices.devices import Devices

from kerasvit import data
from kerasvit.preprocessing import input_problem

FEW = 10  # training images of a class: it is learned badly with fewer
NAMED = 5  # of the classes that have few


def find_data(config, devices: Devices, of_weights: int = 3) -> data.LabelledImages:
    """Returns the images, which the first process prepares, if needed.

    Of files, each process reads its share to find damaged ones.

    Args:
        config: Dataclass of the settings.
        devices: `Devices`.
        of_weights: Number of channels that the weights are for.

    Raises:
        ValueError: As for `find`, in the process that found it and in all others.
    """
    wanted = config.dataset, config.data, config.share, config.share_seed
    own = {
        "validation_share": config.validation_share,
        "channels": config.channels or of_weights,
        "classes": config.classes,
        "task": config.task,
    }
    if not config.data:
        with devices.first_goes_first():
            return find(*wanted, **own)
    failed = True
    try:
        dataset = find(*wanted, **own, shard=devices.shard)
        failed = False
    finally:
        any_failed = devices.any(failed)
    if any_failed:
        raise ValueError("`data`: another process cannot read it, and says why.")
    return dataset


def find(
    dataset: str,
    path: str | None = None,
    share: float = 1.0,
    seed: int = 0,
    *,
    validation_share: float | None = None,
    channels: int = 3,
    classes: Sequence[str] | None = None,
    task: str = "single_label",
    shard: tuple[int, int] = (0, 1),
) -> data.LabelledImages:
    """Returns the images of a folder, or a built-in or tensorflow-datasets set.

    Args:
        dataset: Name of a set, used without a path.
        path: Folder of class folders, or a table, or None.
        share, seed: As for `LabelledImages.of_share`.
        validation_share, channels, shard: As for `kerasvit.data.from_folder`.
        classes: As for `LabelledImages.of_classes`; None: all.
        task: As for `kerasvit.data.from_table`.

    Raises:
        ValueError: As for the functions of `kerasvit.data`; or a set without a path,
            which has RGB images, is wanted with other channels.
    """
    own = {"validation_share": validation_share}
    if path:
        found = from_path(path, task, shard=shard, channels=channels, **own)
    elif channels != 3:
        raise ValueError(
            f"`dataset`: the images of {dataset} are RGB, and the weights are for "
            f"{channels} channels. Give a folder of such images with --data."
        )
    elif dataset in data.BUILT_IN:
        found = data.built_in(dataset, **own)
    else:
        names.check_dataset(dataset)  # it speaks of the option
        found = data.from_tfds(dataset, **own)
    if classes:
        found = found.of_classes(classes)
    return found.of_share(share, seed)


def from_path(path, task: str = "single_label", **options) -> data.LabelledImages:
    """Returns the images of a folder or of a table, with options of `from_folder`.

    Raises:
        ValueError: As for `from_folder` and `from_table`; or a folder is given for
            several labels.
    """
    if Path(path).suffix.lower() in paths.TABLES:
        return data.from_table(path, task=task, **options)
    if task == "multilabel":
        raise ValueError(
            f"`data`: several labels per image are read from a table, {path} is a "
            "folder. Give a .csv or .jsonl: see recipes/LABELS.md."
        )
    return data.from_folder(path, **options)


def augmentation(config) -> data.Augmentation:
    """Returns the augmentation of the settings: that of the name, as options change it.

    Args:
        config: Dataclass of the settings, with a name in `augment`.
    """
    options = ("repeats", "resize", "erasing", "mixup", "cutmix")
    given = {name: getattr(config, name) for name in options}
    changes = {name: value for name, value in given.items() if value is not None}
    if config.rand_augment is not None:
        changes["magnitude"] = config.rand_augment or None
    return dataclasses.replace(data.AUGMENTATIONS[config.augment], **changes)


def counts(dataset) -> np.ndarray:
    """Returns the number of training images of each class.

    Args:
        dataset: `kerasvit.data.LabelledImages`.
    """
    images = dataset.train.images
    if images.has_several_labels:
        return images.labels.sum(axis=0, dtype=int)
    return np.bincount(images.labels, minlength=len(dataset.class_names))


def few_images(config, dataset) -> str | None:
    """Returns a sentence that names classes with few training images, or None.

    Of public datasets it is None, and where the settings ask for few: --share.

    Args:
        config: Dataclass of the settings.
        dataset: `kerasvit.data.LabelledImages`.
    """
    labelled = getattr(config, "objective", "labels") == "labels"
    if not config.data or config.share < 1 or not labelled:
        return None
    number = counts(dataset)
    few = np.flatnonzero(number < FEW)
    if not len(few):
        return None
    few = few[np.argsort(number[few], kind="stable")]
    shown = [f"{dataset.class_names[i]} ({number[i]:,})" for i in few[:NAMED]]
    more = f" and {len(few) - NAMED:,} more classes" if len(few) > NAMED else ""
    options = "; else give --class-weights balanced or --balanced"
    given = config.class_weights or config.balanced
    given = given or config.loss in ("adjusted", "focal")
    if config.task == "multilabel" or given:
        options = ""  # refused, or not to be combined
    return (
        f"Fewer than {FEW} training images: {', '.join(shown)}{more}. Add images"
        f"{options}, and read the table of classes in the card."
    )


def check_first_batch(config, model, dataset) -> None:
    """Checks the augmentation, and images after it.

    Raises:
        ValueError: The values are not in the model's input range; a batch holds one
            image only; the images are resized to less than the model's size.
    """
    chosen = augmentation(config)
    if 1 < chosen.repeats >= config.batch_size:
        raise ValueError(
            f"`repeats`: a batch of {config.batch_size} would be copies of one image. "
            "Give a larger --batch-size or a smaller --repeats. Received: "
            f"{chosen.repeats}."
        )
    options = {**batch_options(config, model), "batch_size": 8}
    options["augment"] = dataclasses.replace(chosen, repeats=1)
    classes = len(dataset.class_names)  # one-hot labels, which can be mixed
    options |= {"seed": config.seed, "classes": classes}
    images, _ = next(iter(data.training_batches(dataset.train.images, **options)))
    transform, built_in = options["model"], not options["normalize"]
    problem = input_problem(images, transform.mean, transform.std, built_in=built_in)
    if problem:
        raise ValueError(problem)


def batch_options(config, model) -> dict:
    """Returns keyword arguments for batches with class indices as labels.

    Args:
        config: Dataclass of the settings. Of a step in parts, a batch is one.
        model: `ImageModel`.
    """
    return {
        "model": model.preprocessing,
        "normalize": not model.record["kwargs"].get("normalization"),
        "batch_size": config.batch_size // config.accumulate,
    }


def fit_options(config, model) -> dict:
    """Returns keyword arguments for batches with the labels of `optimizers.loss_of`."""
    options = batch_options(config, model)
    if has_soft_labels(config):
        options["classes"] = len(model.record["label_names"])
    return options


def has_soft_labels(config) -> bool:
    """Whether labels must be one-hot: they are mixed or smoothed, or of sigmoids."""
    of_each_class = config.loss in ("sigmoid", "focal")
    return bool(augmentation(config).mixing or config.label_smoothing or of_each_class)
