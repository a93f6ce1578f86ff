"""Loading of a file of adapters into a model."""

from collections.abc import Collection
from typing import Any

import keras

from kerasvit.adapters import attach, dense_layers, detach, trained_weights
from kerasvit.backend.threads import alone
from kerasvit.checkpoints import ADAPTERS, AdapterFile, Checkpoint, CheckpointError


def load_kept_adapters(
    model: keras.Model, checkpoint: Checkpoint, **options: Any
) -> None:
    """Loads the file of adapters beside a checkpoint, if its config.json states one.

    Args:
        model: Model with the weights of the checkpoint.
        checkpoint: `Checkpoint`, perhaps of a folder with adapters.
        options: As for `load_file`.

    Raises:
        CheckpointError: The file is missing or damaged, or its hash is wrong.
    """
    stated = checkpoint.config.part("kerasvit").text("adapters_sha256").lower()
    if not stated:
        return
    file = AdapterFile(checkpoint.path.with_name(ADAPTERS))
    if (found := file.sha256()) != stated:
        raise CheckpointError(
            f"{file.path} does not match the config.json beside it: its hash is "
            f"{found} instead of {stated}. They come from two saves: save the model "
            "again, or use all files of one save."
        )
    load_file(model, file, **options)


@alone
def load_file(
    model: keras.Model,
    file: AdapterFile,
    *,
    left_out: Collection[str] = (),
    **options: Any,
) -> None:
    """Attaches the adapters of a file to a model and assigns its tensors.

    Args:
        model: `ImageModel` without adapters. It is unchanged if an error is raised.
        file: `AdapterFile`.
        left_out: Names of layers that keep their values.
        options: Options of `AdapterFile.assign`.

    Raises:
        CheckpointError: The file belongs to a model of other layers or shapes.
    """
    settings = dict(file.settings)
    settings["trained"] = [p for p in settings["trained"] if p not in left_out]
    layers = dense_layers(model)
    sides = [min(layers[p].kernel.shape) for p in settings["layers"] if p in layers]
    if settings["rank"] > min(sides, default=settings["rank"]):
        raise CheckpointError(
            f"{file.path} has adapters of rank {settings['rank']}, larger than a "
            f"kernel of {model.name}. They belong to another model."
        )
    try:
        attach(model, settings)
    except ValueError as error:
        raise CheckpointError(f"{file.path}: {error}") from error
    try:
        file.assign(model, trained_weights(model), left_out=left_out, **options)
    except CheckpointError:
        detach(model, merge=False)
        raise
