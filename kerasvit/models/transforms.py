"""Chooses the evaluation transform of a checkpoint."""

import dataclasses
import logging

from kerasvit.checkpoints import CheckpointError, read_json
from kerasvit.preprocessing import Preprocessing

from .arguments import mean_and_std, normalization_of, sides

log = logging.getLogger("kerasvit")


def transform_of(entry):
    """Returns the evaluation transform of a catalogue entry."""
    return Preprocessing.of_origin(entry.format, **entry.preprocessing)


def given_transform(preprocessing, image_size):
    """Returns the transform that a caller gives, or None.

    Args:
        preprocessing: `Preprocessing`, a dict of its fields, or None.
        image_size: Of the model, as its builder takes it; None: it is not known yet.

    Raises:
        ValueError: It is neither, a field is wrong, or its size is not the model's.
    """
    if preprocessing is None:
        return None
    size = None if image_size is None else tuple(sides(image_size))
    given = preprocessing
    if isinstance(given, dict):
        fields = {field.name for field in dataclasses.fields(Preprocessing)}
        if not set(given) <= fields:
            raise ValueError(
                "`preprocessing` must be a kerasvit.Preprocessing or a dict of its "
                f"fields, {', '.join(sorted(fields))}. Received: {given!r:.300}."
            )
        given = Preprocessing(**{"size": size or 1, **given})
        size = size if "size" in preprocessing else None
    if not isinstance(given, Preprocessing):
        raise ValueError(
            "`preprocessing` must be a kerasvit.Preprocessing or a dict of its fields. "
            f"Received: {given!r:.300}."
        )
    if size and given.size != size:
        raise ValueError(
            f"`preprocessing` makes images of {given.size[0]} × {given.size[1]}, and "
            f"the model takes {size[0]} × {size[1]}. Give the same `image_size`, or a "
            "dict without `size`."
        )
    return given


def check_one_normalization(include, preprocessing, normalization):
    """Raises a `ValueError` where arguments contradict each other."""
    if include is not None and not isinstance(include, bool):
        raise ValueError(
            "`include_preprocessing` must be True, False, or None for as the weights "
            f"have it. Received: {include!r}."
        )
    if normalization and include is False:
        raise ValueError(
            "`include_preprocessing=False` takes the normalisation out of the model, "
            "and `normalization` puts one in: give one of them."
        )
    if normalization and preprocessing is not None:
        raise ValueError(
            "`normalization` and `preprocessing` both give a mean and a deviation: "
            "give `preprocessing`, with include_preprocessing=True."
        )


def with_normalization(kwargs, transform, include=None, *, given=False):
    """Returns (builder's arguments, transform) with one normalisation.

    Args:
        kwargs: Of the builder. A `normalization` in it is what the weights were
            trained with: the transform takes its mean and deviation.
        transform: `Preprocessing` of the weights, or of the caller.
        include: True puts the normalisation into the model, False takes it out; None
            leaves it where `kwargs` has it.
        given: Whether the transform is the caller's: a model that normalises images
            takes its mean and deviation.

    Raises:
        ValueError: `normalization` is of a wrong kind.
    """
    trained_with = kwargs.get("normalization")
    if trained_with is not None and not given:
        transform = dataclasses.replace(transform, **mean_and_std(trained_with))
    if include is None:
        include = trained_with is not None
    normalization = normalization_of(transform) if include else None
    return {**kwargs, "normalization": normalization}, transform


def stated(checkpoint):
    """Returns the transform in the files of a checkpoint, or None.

    Raises:
        CheckpointError: They tell none that can be made.
    """
    config, path = checkpoint.config, checkpoint.path.parent / "config.json"
    try:
        if checkpoint.record:
            return Preprocessing.from_config(checkpoint.record["preprocessing"])
        if timms := config.get("pretrained_cfg"):
            return Preprocessing.from_timm(timms)
        path = path.with_name("preprocessor_config.json")
        processor = config and read_json(path)
        if not processor:
            return None
        return Preprocessing.from_transformers(processor, config.get("model_type"))
    except CheckpointError:
        raise
    except ValueError as error:
        theirs = "Correct it there, or remove it."
        what_to_do = "Save the model again." if checkpoint.record else theirs
        raise CheckpointError(
            f"{path} tells a preprocessing that cannot be made: {error} {what_to_do}"
        ) from error


def size_of(checkpoint):
    """Returns (height, width) in the transform of the files, or None."""
    try:
        transform = None if checkpoint.record else stated(checkpoint)
    except CheckpointError:
        return None  # the caller may state another; else `stated` raises it again
    timms = checkpoint.config.get("pretrained_cfg")
    known = transform and (not timms or timms.get("input_size"))
    return transform.size if known else None


def customary(checkpoint, variant, image_size):
    """Returns the default transform of the weights' code base, and logs it."""
    origin = checkpoint.origin
    # The rows say what timm and the authors of AlterNet evaluate them with.
    is_stated = origin in ("timm", "how_do_vits_work")
    fields = variant.evaluation if is_stated else {}
    if origin == "timm" and min(image_size) >= 384:
        fields = {**fields, "crop": 1.0}  # as all of timm's of that size
    transform = Preprocessing.of_origin(origin, image_size, **fields)
    log.warning(
        "%s says nothing of its preprocessing; taken is what %s uses: %s. The argument "
        "`preprocessing` says otherwise.",
        checkpoint.path,
        origin,
        transform,
    )
    return transform
