"""The evaluation transform of a checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any

from kerasvit.arguments import is_any, sides, sides_or_any
from kerasvit.checkpoints import Checkpoint, CheckpointError, Description, read_json
from kerasvit.hub.manifest import Entry
from kerasvit.preprocessing import Preprocessing
from kerasvit.preprocessing.transform import mean_and_std, normalization_of


def transform_of(entry: Entry) -> Preprocessing:
    """Returns the evaluation transform of a catalogue entry."""
    return Preprocessing.of_origin(entry.format, **entry.preprocessing)


def with_transform(checkpoint: Checkpoint) -> Description:
    """Returns the description with the transform that the files state, if any."""
    description = checkpoint.description
    try:
        transform = _stated(checkpoint)
    except CheckpointError as error:
        # The error is raised later, unless the caller states a transform.
        return dataclasses.replace(description, transform_error=error)
    timm_config = checkpoint.config.get("pretrained_cfg")
    sized = transform and not description.saved
    if timm_config:
        sized = sized and timm_config.get("input_size")
    return dataclasses.replace(
        description,
        transform=transform,
        transform_size=transform.size if transform and sized else None,
    )


def _stated(checkpoint: Checkpoint) -> Preprocessing | None:
    """Returns the transform in the files of a checkpoint, or None.

    Raises:
        CheckpointError: The stated transform is invalid.
    """
    config, path = checkpoint.config, checkpoint.path.parent / "config.json"
    saved = checkpoint.description.saved
    try:
        if saved:
            return Preprocessing.from_config(config["kerasvit"]["preprocessing"])
        if timm_config := config.get("pretrained_cfg"):
            return Preprocessing.from_timm(timm_config)
        processor, path = _processor(path.parent) if config else ({}, path)
        if not processor:
            return None
        return Preprocessing.from_transformers(processor, config.get("model_type"))
    except CheckpointError:
        raise
    except ValueError as error:
        what_to_do = "Save the model again." if saved else "Correct or remove it there."
        raise CheckpointError(
            f"{path} states an invalid preprocessing: {error} {what_to_do}"
        ) from error


def _processor(folder: Path) -> tuple[Any, Path]:
    """Returns the settings of transformers' image processor, and their file.

    transformers 5 writes processor_config.json, which then comes first:
    transformers/image_processing_base.py `get_image_processor_dict`.
    """
    path = folder / "processor_config.json"
    if nested := read_json(path).get("image_processor"):
        return nested, path
    path = folder / "preprocessor_config.json"
    return read_json(path), path


def default_transform(
    description: Description, fields: dict[str, Any], image_size: tuple[int, int]
) -> tuple[Preprocessing, str]:
    """Returns (default transform of a code base, warning that it was assumed).

    Args:
        description: Description of a checkpoint whose files state no transform.
        fields: Fields of `Preprocessing` in which the variant differs from timm's ViTs.
        image_size: (height, width) for which the weights were trained.
    """
    code_base = description.code_base or ""  # None: only of saved folders
    # The variants' fields are those of timm and of the authors of AlterNet.
    fields = dict(fields) if code_base in ("timm", "how_do_vits_work") else {}
    if code_base == "timm" and min(image_size) >= 384:
        fields["crop"] = 1.0  # as in all of timm's models of that size
    if code_base == "transformers":  # the defaults of the model's processor
        transform = Preprocessing.from_transformers({}, description.architecture)
        transform = transform.with_size(image_size)
    else:
        transform = Preprocessing.of_origin(code_base, image_size, **fields)
    return transform, (
        f"{description.path} states no preprocessing. The default of {code_base} is "
        f"used: {transform}. Pass `preprocessing` to use another."
    )


def with_normalization(
    kwargs: dict[str, Any],
    transform: Preprocessing,
    include: bool | None = None,
    *,
    given: bool = False,
) -> tuple[dict[str, Any], Preprocessing]:
    """Returns (arguments of the builder, transform) with one normalisation.

    Args:
        kwargs: Arguments of the builder. The weights were trained with `normalization`,
            if present: its mean and standard deviation replace those of the transform.
        transform: Transform of the weights or of the caller.
        include: True adds the normalisation to the model, False removes it, None keeps
            the setting of `kwargs`.
        given: Whether the caller stated the transform. Then its mean and standard
            deviation are kept and also used by a model that normalises images.

    The transform gets the size of the model, or keeps its own if that takes any.

    Raises:
        ArgumentError: `normalization` has a wrong type.
    """
    trained_with = mean_and_std(kwargs.get("normalization"))
    if trained_with is not None and not given:
        transform = dataclasses.replace(transform, **trained_with)
    if include is None:
        include = trained_with is not None
    normalization = normalization_of(transform) if include else None
    kwargs = {**kwargs, "normalization": normalization}
    if not is_any(sides_or_any(kwargs["image_size"])):
        height, width = sides(kwargs["image_size"])
        transform = transform.with_size((height, width))
    return kwargs, transform
