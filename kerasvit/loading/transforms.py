"""Chooses the evaluation transform of a checkpoint."""

import dataclasses
from typing import Any

from kerasvit.arguments import sides
from kerasvit.checkpoints import Checkpoint, CheckpointError, Description, read_json
from kerasvit.hub.manifest import Entry
from kerasvit.layers.position_embedding import pair
from kerasvit.preprocessing import Preprocessing
from kerasvit.preprocessing.normalization import mean_and_std, normalization_of


def transform_of(entry: Entry) -> Preprocessing:
    """Returns the evaluation transform of a catalogue entry."""
    return Preprocessing.of_origin(entry.format, **entry.preprocessing)


def with_transform(checkpoint: Checkpoint) -> Description:
    """Returns the description with the transform that the files state, if they do."""
    description = checkpoint.description
    try:
        transform = _stated(checkpoint)
    except CheckpointError as error:
        # Only an error if the caller states no other.
        return dataclasses.replace(description, transform_error=error)
    timms = checkpoint.config.get("pretrained_cfg")
    sized = transform and not description.saved
    if timms:
        sized = sized and timms.get("input_size")
    return dataclasses.replace(
        description,
        transform=transform,
        transform_size=transform.size if transform and sized else None,
    )


def _stated(checkpoint: Checkpoint) -> Preprocessing | None:
    """Returns the transform in the files of a checkpoint, or None.

    Raises:
        CheckpointError: They state one that cannot be made.
    """
    config, path = checkpoint.config, checkpoint.path.parent / "config.json"
    saved = checkpoint.description.saved
    try:
        if saved:
            return Preprocessing.from_config(config["kerasvit"]["preprocessing"])
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
        what_to_do = "Save the model again." if saved else "Correct or remove it there."
        raise CheckpointError(
            f"{path} states a preprocessing that cannot be made: {error} {what_to_do}"
        ) from error


def default_transform(
    description: Description, fields: dict[str, Any], image_size: tuple[int, int]
) -> tuple[Preprocessing, str]:
    """Returns the transform that a code base uses, and a warning that it was assumed.

    Args:
        description: Of a checkpoint whose files state no transform.
        fields: Those in which the variant differs from timm's ViTs.
        image_size: (height, width) that the weights were made for.
    """
    code_base = description.code_base or ""  # None: only of saved folders
    # The rows say what timm and the authors of AlterNet evaluate them with.
    fields = dict(fields) if code_base in ("timm", "how_do_vits_work") else {}
    if code_base == "timm" and min(image_size) >= 384:
        fields["crop"] = 1.0  # as all of timm's models of that size
    transform = Preprocessing.of_origin(code_base, image_size, **fields)
    return transform, (
        f"{description.path} states no preprocessing. That of {code_base} is used: "
        f"{transform}. The argument `preprocessing` states another."
    )


def with_normalization(
    kwargs: dict[str, Any],
    transform: Preprocessing,
    include: bool | None = None,
    *,
    given: bool = False,
) -> tuple[dict[str, Any], Preprocessing]:
    """Returns (builder's arguments, transform) with one normalisation.

    Args:
        kwargs: Arguments of the builder. A `normalization` in it is what the weights
            were trained with: the transform takes its mean and deviation.
        transform: Transform of the weights, or of the caller.
        include: True puts the normalisation into the model, False takes it out; None
            leaves it where `kwargs` has it.
        given: Whether the transform is the caller's: a model that normalises images
            takes its mean and deviation.

    Raises:
        ArgumentError: `normalization` is of a wrong kind.
    """
    trained_with = mean_and_std(kwargs.get("normalization"))
    if trained_with is not None and not given:
        transform = dataclasses.replace(transform, **trained_with)
    if include is None:
        include = trained_with is not None
    normalization = normalization_of(transform) if include else None
    kwargs = {**kwargs, "normalization": normalization}
    return kwargs, transform.with_size(pair(sides(kwargs["image_size"])))
