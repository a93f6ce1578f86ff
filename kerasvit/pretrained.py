"""Loading of models from folders and the Hub, and changes of the image size."""

import os
from inspect import signature
from typing import Any

import keras
import numpy as np

from kerasvit.preprocessing import Preprocessing

from . import models
from .adapters import attach
from .arguments import Size
from .backend.keras_private import built_with_zeros
from .backend.threads import using
from .checkpoints import (
    VARIABLE_PATHS,
    Checkpoint,
    CheckpointError,
    Description,
    assign,
    resampling_kernel,
)
from .hub.access import check_access, check_for_hub, on_hub
from .hub.download import fetch_repository, parse_address
from .hub.manifest import Entry, explain_tag, published
from .layers.position_embedding import check_resampling
from .loading.find import entry_named, find, path_of
from .loading.load import retried
from .loading.request import Builder
from .loading.resolve import fits
from .models import VARIANTS, ImageModel, Variant
from .quantization import restore, settings_of
from .records import table_size
from .saving import record_of


def from_pretrained(
    weights: str | os.PathLike[str] | Entry,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    local_files_only: bool = False,
    state: str | None = None,
    **changes: Any,
) -> ImageModel:
    """Loads a model from a folder, a file or the Hugging Face Hub.

    Args:
        weights: Path of a folder that `save_pretrained` or a recipe wrote, or of a
            `.safetensors`, `.npz` or `.pth` file of a known code base; a name of the
            catalogue, "ViTB16/sam"; or "hf://user/repository[@revision]", a repository
            in the format of kerasvit, timm or transformers. The architecture must be
            one of kerasvit.
        revision: Branch, tag or commit of the repository. None: the newest commit.
        token: Token of the Hub. None: that of `hf auth login`. It is not stored.
        cache_dir: Folder for downloads. None: the default cache of the Hub's client.
        endpoint: Address of another Hub. None: that of HF_ENDPOINT, or the default.
        local_files_only: Whether to use only cached files, without any request.
        state: Which of several models in a file, such as "ema" in one with `model` and
            `model_ema`; or what the names of a part begin with, such as
            "teacher.backbone". None: the only one.
        **changes: Arguments of a variant's call: `num_classes`, `image_size`,
            `preprocessing`, `label_names`, `kernel`, `dtype`, and other arguments of
            the builder.

    Returns:
        `ImageModel`, (batch, H, W, 3) → (batch, num_classes) logits.

    Raises:
        ValueError: The files do not exist, are damaged or have an unknown architecture
            (`CheckpointError`); a change is wrong; or arguments of the Hub are passed
            with a path.
    """
    access: dict[str, Any] = {
        "token": token,
        "cache_dir": cache_dir,
        "endpoint": endpoint,
        "local_files_only": local_files_only,
    }
    weights = entry_named(weights) or weights
    _check_named(weights)
    _check_access(weights, {"revision": revision, **access})
    if isinstance(weights, Entry):
        return getattr(models, weights.model)(weights, state=state, **changes)
    if on_hub(weights):
        repository, in_address = parse_address(weights)
        if revision and in_address and revision != in_address:
            raise ValueError(
                f"`revision` is given twice: {revision!r} and in {weights!r}. Pass one."
            )
        weights = fetch_repository(repository, revision or in_address, **access)

    def load() -> ImageModel:
        checkpoint = find(weights, state=state)
        return _variant_of(checkpoint)(checkpoint, **changes)

    return retried(weights, load)


def _check_named(weights: object) -> None:
    """Raises for the name of a variant without public weights."""
    name = weights if isinstance(weights, str) else ""
    if name in {row.name for row in VARIANTS} and not published(name):
        if not path_of(name).exists():
            raise CheckpointError(explain_tag(name, name))


def _check_access(weights: object, access: dict[str, Any]) -> None:
    """Raises for wrong types, and for Hub arguments together with a path."""
    if not isinstance(weights, (str, os.PathLike, Entry)) or weights == "":
        raise ValueError(
            "`weights` must be the path of a folder or of a file, or "
            f'"hf://user/repository". Received: {weights!r}.'
        )
    check_access(**access)
    given = [name for name, value in access.items() if value not in (None, False)]
    if given and isinstance(weights, Entry):
        raise ValueError(
            f"{', '.join(given)} cannot be given for weights of the catalogue, which "
            "states their source. Use HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE. "
            f"Received: {weights.model}({weights.tag!r})."
        )
    check_for_hub(weights, access)


def resize(
    model: keras.Model,
    image_size: int | tuple[int, int] | tuple[None, None],
    kernel: str | None = None,
) -> ImageModel:
    """Returns a copy of a model for another image size.

    Position tables are resampled.

    Args:
        model: `ImageModel`, which is not changed.
        image_size: Height and width in pixels, multiples of the patch size; an int for
            a square. (None, None): the copy takes images of any size and has the
            position table of the model, which it resamples in each call.
        kernel: Resampling kernel, one of `kerasvit.layers.resampling.KERNELS`. None: as
            the code base of the weights does (Google: corner-aligned linear, timm:
            antialiased bicubic).

    Returns:
        A new `ImageModel` with its own variables, not compiled. Fine-tune it for best
        accuracy.

    Raises:
        ValueError: The model has no record, the size does not fit, or the model is a
            quantised Mixer, whose kernels belong to one size.
    """
    record = record_of(model)
    check_resampling(kernel, None)
    kwargs = {**record["kwargs"], "image_size": Size.of(image_size, any_size=True)}
    kwargs["name"] = model.name
    builder = _builder(record["builder"])
    table = {
        "image_size": table_size(record["kwargs"]),
        "kernel": record.get("kernel")
        or resampling_kernel(record["origin"], record["builder"]),
        **(kwargs.get("resampling") or {}),
    }
    if kernel is not None:
        table["kernel"] = kernel
    if kwargs["image_size"].is_any and "resampling" in signature(builder).parameters:
        kwargs["resampling"] = table
    first = next(layer for layer in model.layers if layer.weights)
    resized = built_with_zeros(lambda: builder(**kwargs, dtype=first.dtype_policy))
    restore(resized, settings_of(model))
    if adapters := getattr(model, "adapters", None):
        attach(resized, adapters)
    with using(model.variables):
        assign(
            resized,
            _Live(model),
            VARIABLE_PATHS.key_map(kwargs),
            source_grids=_grids(model),
            kernel=table["kernel"],
        )
    size = resized.record["kwargs"]["image_size"]
    resized.record = {
        **record,
        "kwargs": resized.record["kwargs"],
        "preprocessing": _sized(record["preprocessing"], size),
    }
    if card := getattr(model, "card", None):
        resized.card = dict(card)
    if not adapters:  # `attach` has frozen layers inside others
        trainable = {layer.name: layer.trainable for layer in model.layers}
        for layer in resized.layers:
            layer.trainable = trainable.get(layer.name, True)
    trainable = {variable.path: variable.trainable for variable in model.weights}
    for variable in resized.weights:  # variables of nested layers, too
        variable.trainable = trainable[variable.path]
    if not model.trainable:
        resized.trainable = False
    return resized


def _sized(transform: dict[str, Any] | None, size: Any) -> dict[str, Any] | None:
    """Returns the configuration of a transform, if there is one, for another size."""
    if transform is None or size[0] is None:
        return transform
    return Preprocessing.from_config(transform).with_size(size).to_config()


class _Live:
    """Variables of a model with the interface of `Checkpoint`."""

    path = "the model"

    def __init__(self, model: keras.Model) -> None:
        self._variables = {v.path: v for v in model.weights}
        self.shapes = {path: tuple(v.shape) for path, v in self._variables.items()}

    def __getitem__(self, path: str) -> np.ndarray:
        return keras.ops.convert_to_numpy(self._variables[path])


def _grids(model: keras.Model) -> dict[str, tuple[int, int]]:
    """Returns {layer: (height, width)} of layers with a grid."""
    return {layer.name: layer.grid for layer in model.layers if hasattr(layer, "grid")}


def _builder(name: str) -> Builder:
    """Returns the builder with a name in a record."""
    builder = models.BUILDERS.get(name)
    if builder is None:
        raise ValueError(
            f"This version of kerasvit has no builder {name!r}. It has "
            f"{', '.join(models.BUILDERS)}. Upgrade: pip install -U kerasvit."
        )
    return builder


def _variant_of(checkpoint: Checkpoint) -> Variant:
    """Returns the variant of a checkpoint, or a new one."""
    description = checkpoint.description
    if description.saved:
        return Variant(description.variant, _builder(description.builder))
    return fitting_variant(description)


def fitting_variant(description: Description) -> Variant:
    """Returns the variant that a description fits, or a new one."""
    builder = models.BUILDERS[description.builder]
    numbers = {**description.arguments, **description.numbers}
    rows = [row for row in VARIANTS if row.builder is builder and fits(row, numbers)]
    if not rows:
        return Variant(None, builder, **description.numbers)

    def rank(row: Variant) -> tuple[bool, str, int]:
        named = description.architecture.startswith(row.architecture)
        return named, row.architecture, len(row.arguments)  # the most specific one

    return max(rows, key=rank)
