"""Builds the model of a training: its variant, its head, and what is frozen."""

import dataclasses
import logging
import math
import re

import keras
import numpy as np
from command import names
from training.progress import console

import kerasvit
from kerasvit.fine_tuning import heads_of
from kerasvit.inspection import layers_in

MEASURED = 2_000  # images, whose means and deviations are measured

log = logging.getLogger("kerasvit")


def find_variant(config, small: dict) -> kerasvit.Variant | None:
    """Sets dtype policy and seed, and returns the variant of the model.

    Args:
        config: Dataclass of the settings.
        small: {name: variant} of the models that the recipe defines.

    Returns:
        The variant; None if the weights determine the model.
    """
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(config.seed)
    name = config.model or ("small" if not config.weights else None)
    if name is None:
        return None
    names.check_model(name, small)
    return small.get(name) or getattr(kerasvit, name)


def check_weights(config, small: dict) -> int:
    """Returns the number of channels that the weights are for, before reading images.

    Args:
        config, small: As for `find_variant`.

    Raises:
        ValueError: The weights are of another model.
    """
    variant = find_variant(config, small)
    if not config.weights:
        return 3
    level = log.level
    log.setLevel(logging.ERROR)  # `build` logs the same messages again
    try:
        if variant:
            found = variant.preprocessing(config.weights, state=config.state)
            return found.channels
        built = kerasvit.from_pretrained(config.weights, state=config.state)
        return built.preprocessing.channels
    finally:
        log.setLevel(level)


def set_means(config, model, images, of_weights: int = 3) -> str | None:
    """Sets means and deviations of images with other channels than the weights'.

    They are measured on training images, and a part of the model's transform. It has
    the range of values of the settings, too.

    Args:
        config: Dataclass of the settings.
        model: `ImageModel`.
        images: `kerasvit.data.LabelledImages`.
        of_weights: Number of channels that the weights are for.

    Returns:
        How they were measured, for the card; None: they are those of the weights.

    Raises:
        ValueError: A channel has the same value in all images.
    """
    transform = model.preprocessing
    if config.value_range:
        transform = dataclasses.replace(transform, value_range=config.value_range)
    measured = transform.channels != of_weights
    if measured:
        transform = images.train.measured(transform, MEASURED)
    if transform != model.preprocessing:
        model.preprocessing = transform
    if not measured:
        return None
    found = f"measured on {min(MEASURED, len(images.train)):,} training images"
    count = transform.channels
    what = f"images of {count} channels" if count > 1 else "grey images"
    console.print(f"Means and deviations of {what}: {found}.", highlight=False)
    return found


def set_labels(config, model, label_names: list[str]) -> None:
    """Gives a new model the classes of the images, and prints what its head is.

    Args:
        config: `finetune.Config`.
        model: `ImageModel`, built with weights, if any, and the number of classes.
        label_names: Names of the images' classes, in the order of the labels.
    """
    if model.adapters:
        kerasvit.merge_lora(model)
        console.print("The adapters of the weights are merged into their kernels.")
    if config.weights:
        console.print(reset_unless_same_classes(model, label_names))
    else:
        console.print(
            f"{model.record['variant']}: fresh weights, as --weights gives none."
        )
        # Fresh weights need no crop: use the whole image.
        model.record["preprocessing"]["crop"] = 1.0
    model.record["label_names"] = label_names
    set_task(config, model)


def set_task(config, model) -> None:
    """Sets what the outputs of a model mean, and removes what was measured of others.

    Args:
        config: Dataclass of the settings.
        model: `ImageModel` with a head for the classes.
    """
    for name in ("problem_type", "calibration"):
        model.record.pop(name, None)
    if config.task == "multilabel":
        model.record["problem_type"] = "multi_label_classification"


def reset_unless_same_classes(model, label_names: list[str]) -> str:
    """Sets a loaded head to zeros if it has other classes than the images.

    kerasvit keeps a head if the number of classes is the same, even if the classes are
    not.

    Args:
        model: `ImageModel`, built with weights and the number of classes.
        label_names: Names of the images' classes, in the order of the labels.

    Returns:
        A sentence that states which head the model has and why.
    """
    count, named = len(label_names), model.record["label_names"]
    heads = heads_of(model)
    if not any(np.any(weight) for head in heads for weight in head.get_weights()):
        return f"Head: zeros, because the weights have none for {count} classes."
    if same_classes(named, label_names):
        return f"Head: that of the weights, because it has the same {count} classes."
    model.card = None  # that of another classifier
    for head in heads:
        head.set_weights([np.zeros_like(weight) for weight in head.get_weights()])
    if named is None:
        return (
            f"Head: zeros; the weights have one for {count} classes, but do not name "
            "them."
        )
    theirs = "ImageNet's" if isinstance(named, str) else f"{', '.join(named[:3])}, …"
    return f"Head: zeros; that of the weights is for {theirs}."


def same_classes(named, label_names: list[str]) -> bool:
    """Returns whether weights and images have the same classes in the same order.

    Args:
        named: `label_names` of a model's record: a list, "imagenet1k" or None.
        label_names: Names of the images' classes. "imagenet1k" equals the 1,000 sorted
            WordNet numbers, such as n01440764, of datasets and folders of ImageNet.
    """
    if named == "imagenet1k":
        numbers = all(re.fullmatch(r"n\d{8}", name) for name in label_names)
        return (
            numbers and len(label_names) == 1000 and sorted(label_names) == label_names
        )
    return named == label_names


def train_only(config, model: keras.Model) -> None:
    """Adds LoRA's adapters or freezes layers, as the settings ask, and prints both.

    Raises:
        ValueError: No layer matches, or no weight would be trained.
    """
    rank = getattr(config, "lora", None)
    if rank:
        layers = {"layers": config.lora_layers} if config.lora_layers else {}
        try:
            kerasvit.add_lora(model, rank, train_norms=config.train_norms, **layers)
        except ValueError as error:
            raise ValueError(f"--lora, --lora-layers: {error}") from error
        text = f"LoRA of rank {rank}: {trained_weights(model)}"
        console.print(text, highlight=False)
    if frozen := freeze(model, config.freeze):
        console.print(frozen, highlight=False, soft_wrap=True)


def freeze(model: keras.Model, pattern: str | None) -> str | None:
    """Freezes layers, also the statistics of their normalisation.

    A copy of a model on its devices must be frozen again.

    Args:
        model: Built model.
        pattern: Regular expression, searched in the layers' paths, such as
            "encoder_block_0" and "encoder_block_0/attention"; None freezes nothing.

    Returns:
        A sentence with the layers and the number of trained weights.

    Raises:
        ValueError: No layer matches, or no weight would be trained.
    """
    if pattern is None:
        return None
    layers = [each for each in layers_in(model, include_self=False) if each.weights]
    chosen = [each for each in layers if re.search(pattern, each.path)]
    if not chosen:
        names = ", ".join(dict.fromkeys(each.path.split("/")[0] for each in layers))
        raise ValueError(
            f"`freeze` matches no layer. Received: {pattern!r}, for the layers {names}."
        )
    for layer in chosen:
        layer.trainable = False
    if not model.trainable_variables:
        raise ValueError(
            f"`freeze`: {pattern!r} freezes all layers. Leave one, such as the head."
        )
    # A layer in a frozen one is not named.
    paths = {each.path for each in chosen}
    shown = [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]
    order = [each.path for each in chosen if each.path in shown]
    return f"Frozen: {', '.join(order)}. {trained_weights(model)}"


def trained_weights(model: keras.Model) -> str:
    """Returns a sentence with the number of weights that are trained."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    return f"{trained:,} of {model.count_params():,} weights are trained."
