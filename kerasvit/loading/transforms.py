"""The evaluation transform of a checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any

from kerasvit.arguments import ArgumentError
from kerasvit.checkpoints import CheckpointError, Description, Statement
from kerasvit.hub.manifest import Entry
from kerasvit.preprocessing import Preprocessing
from kerasvit.preprocessing.transform import mean_and_std, normalization_of


def transform_of(entry: Entry) -> Preprocessing:
    """Returns the evaluation transform of a catalogue entry."""
    return Preprocessing.of_origin(entry.format, **entry.preprocessing)


def stated_transform(description: Description, stated: Statement) -> Preprocessing:
    """Returns the transform that a description states.

    Raises:
        CheckpointError: The stated transform is invalid.
    """
    if stated.error:
        raise stated.error
    try:
        if stated.form == "kerasvit":
            return Preprocessing.from_config(stated.settings)
        if stated.form == "timm":
            return Preprocessing.from_timm(stated.settings)
        if stated.form == "keras_hub":
            return Preprocessing.from_keras_hub(stated.settings)
        return Preprocessing.from_transformers(stated.settings, stated.model_type)
    except ValueError as error:
        saved = description.saved
        path = stated.path or Path(description.path).with_name("config.json")
        what_to_do = "Save the model again." if saved else "Correct or remove it there."
        raise CheckpointError(
            f"{path} states an invalid preprocessing: {error} {what_to_do}"
        ) from error


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
    of_variant = code_base in ("timm", "how_do_vits_work")
    fields = {**description.transform, **(fields if of_variant else {})}
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


def for_channels(stated: Preprocessing, channels: int) -> Preprocessing:
    """Returns the transform that the caller states, for a number of channels.

    Raises:
        ArgumentError: It has a mean or deviation for each of other channels.
    """
    alike = len({*stated.mean}) == len({*stated.std}) == 1
    if stated.channels != channels and not alike:
        raise ArgumentError(
            f"`preprocessing` has means and deviations of {stated.channels} channels, "
            f"and the model takes {channels}. State as many, or one number for all.",
            "preprocessing",
            "channels",
        )
    return stated.with_channels(channels)


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
    if not given:
        transform = transform.with_channels(kwargs.get("channels", 3))
    if include is None:
        include = trained_with is not None
    normalization = normalization_of(transform) if include else None
    kwargs = {**kwargs, "normalization": normalization}
    if not kwargs["image_size"].is_any:
        transform = transform.with_size(kwargs["image_size"])
    return kwargs, transform
