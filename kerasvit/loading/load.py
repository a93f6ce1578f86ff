"""Loading of a checkpoint into a model of a variant, in four steps."""

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import keras

from kerasvit import checkpoints
from kerasvit.adapters import (
    attach,
    dense_layers,
    detach,
    rank_and_alpha,
    trained_weights,
)
from kerasvit.arguments import ArgumentError, cells_of, integer
from kerasvit.backend.keras_private import TooLargeError, built_with_zeros
from kerasvit.backend.threads import alone
from kerasvit.checkpoints import (
    ADAPTERS,
    AdapterFile,
    Adapters,
    Checkpoint,
    CheckpointError,
    former_save,
    stamp,
)
from kerasvit.hub.download import CONFIG, PAGE, TENSORS
from kerasvit.loaded_card import WITHOUT_EFFECT, remember
from kerasvit.quantization import restore
from kerasvit.records import table_size

from .find import GivenWeights, ZeroedHead, catalogue_entry, check_entry, find, path_of
from .request import Request, VariantLike
from .resolve import Plan, file_in_errors, plan_fresh, resolve

log = logging.getLogger("kerasvit")
# Allowance beyond the content of the file: 64 MB of weights and as many tensors as a
# ViT-L has, so that a file of another model gives an error that lists missing tensors.
MORE_WEIGHTS, MORE_TENSORS = 2**24, 300
MAX_WIDTH = 2**16  # largest number of input features of a fresh head


def load(weights: GivenWeights, variant: VariantLike, request: Request) -> keras.Model:
    """Builds a variant and loads weights into it.

    Args:
        weights: Tag, `Entry`, path, address or `Checkpoint`.
        variant: `Variant` to build.
        request: Arguments that the caller states.

    Raises:
        ValueError: An argument is wrong, or the weights do not fit
            (`CheckpointError`).
    """
    if entry := catalogue_entry(weights, variant):
        check_entry(entry, variant, request)
    checkpoint = find(entry or weights, variant.label, request.state)
    plan = resolve(checkpoint.description, variant, request)
    for note in filter(None, (plan.transform_note, *plan.notes)):
        log.warning("%s", note)
    model = build(variant.builder, plan, checkpoint)
    model.record.update(plan.record)
    _restore_quantization(model, checkpoint, plan)
    assign(model, checkpoint, plan)
    if checkpoint.config:  # otherwise the README.md may be about something else
        remember(
            model,
            checkpoint.path.with_name(PAGE),
            same_head="head" not in plan.left_out,
            same=_same(model, plan, checkpoint.description.arguments, variant),
        )
    return model


def build_fresh(variant: VariantLike, request: Request) -> keras.Model:
    """Builds a variant with fresh weights."""
    plan = plan_fresh(variant, request)
    model = variant.builder(**plan.kwargs)
    model.record.update(plan.record)
    return model


def _same(
    model: keras.Model, plan: Plan, arguments: dict[str, Any], variant: VariantLike
) -> bool:
    """Returns whether a model computes what that of the files computes.

    It does not if the caller stated another size, transform or part of the network.
    """
    trained = {**variant.defaults, "image_size": plan.source_size}
    trained |= {**arguments, **variant.numbers}
    kwargs, names = model.record["kwargs"], plan.explicit & trained.keys()
    changed = [
        # As JSON, which has no tuples.
        json.dumps(kwargs[name]) != json.dumps(trained[name])
        for name in names - {*WITHOUT_EFFECT}
    ]
    transform = plan.record["preprocessing"]
    stated = plan.stated_transform.to_config() if plan.stated_transform else transform
    stated = {**stated, "size": transform["size"]}  # compared as the image size
    return not any(changed) and stated == transform


def _restore_quantization(
    model: keras.Model, checkpoint: Checkpoint, plan: Plan
) -> None:
    """Quantises the layers whose kernels are quantised in the file.

    Raises:
        CheckpointError: The model has no such layer.
        ValueError: The caller's dtype is float16.
    """
    settings = [
        {**group, "layers": [p for p in group["layers"] if p not in plan.left_out]}
        for group in checkpoint.description.quantization
    ]
    if not settings:
        return
    try:
        restore(model, settings)
    except ArgumentError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error


def assign(model: keras.Model, checkpoint: Checkpoint, plan: Plan) -> None:
    """Assigns the tensors of a checkpoint to the model of a plan.

    Raises:
        CheckpointError: The tensors do not fit, or the file's hash is wrong.
    """
    with (
        checked_while_read(checkpoint),
        file_in_errors(str(checkpoint.path), plan.kwargs, plan.explicit),
    ):
        checkpoints.assign(
            model,
            checkpoint,
            checkpoint.key_map(plan.kwargs),
            left_out=plan.left_out,
            source_grids=_source_grids(model, plan),
            kernel=plan.kernel,
        )
    load_kept_adapters(
        model,
        checkpoint,
        left_out=plan.left_out,
        source_grids=_source_grids(model, plan),
        kernel=plan.kernel,
    )
    if not checkpoint.description.saved and "head" not in plan.left_out:
        for variable in model.weights:
            if variable.path == "head/kernel" and not keras.ops.any(variable.value):
                raise ZeroedHead(str(checkpoint.path), variable.shape[-1])


def _source_grids(model: keras.Model, plan: Plan) -> dict[str, tuple[int, int]]:
    """Returns {layer: (height, width)} of the grids of the tensors in the file."""
    partial = bool(plan.kwargs.get("partial_patches"))
    own = table_size(model.record["kwargs"]) or plan.source_size
    trained = cells_of(plan.source_size, plan.source_stride, partial)
    built = cells_of(own, plan.stride, partial)
    return {
        layer.name: plan.source_grid
        or tuple(
            cells * then // now
            for cells, then, now in zip(layer.grid, trained, built, strict=True)
        )
        for layer in model.layers
        if hasattr(layer, "grid")
    }


def build(builder: Callable, plan: Plan, checkpoint: Checkpoint) -> keras.Model:
    """Builds a model that is not larger than the checkpoint's tensors can fill.

    A configuration can state any size. The variables of the model are counted while it
    is built, and an error is raised as soon as there are more of them than the file can
    fill.

    Args:
        builder: Builder of `ImageModel`s.
        plan: Arguments of the builder, and which of them the caller stated.
        checkpoint: `Checkpoint` whose tensors are assigned to the model afterwards.

    Raises:
        CheckpointError: The model has more weights than the file, and the caller's head
            or image size does not explain it; or an argument that the file states is
            wrong.
        ValueError: An argument that the caller stated is wrong.
    """
    shapes, path = checkpoint.shapes.values(), str(checkpoint.path)
    explicit = {key: plan.kwargs[key] for key in sorted(plan.explicit)}
    held = {"weights": checkpoint.weight_count, "tensors": len(shapes)}
    limits = {
        "weights": MORE_WEIGHTS
        + _factor(explicit) * held["weights"]
        + _fresh_heads(shapes, explicit),
        "variables": 3 * held["tensors"] + MORE_TENSORS,  # of query, key, value
    }
    try:
        with file_in_errors(path, plan.kwargs, plan.explicit):
            return built_with_zeros(
                lambda: builder(**plan.kwargs),
                max_weights=limits["weights"],
                max_variables=limits["variables"],
            )
    except TooLargeError as error:
        holds = f"{held['weights']:,} weights in {held['tensors']:,} tensors"
        hint = f", or reduce {explicit!r:.200}" if explicit else ""
        raise CheckpointError(
            f"{path} holds {holds}, but its configuration describes a model of more "
            f"than {limits[error.what]:,} {error.what}: {plan.kwargs!r:.500}. The "
            "files belong to two models or are malicious; use the complete "
            f"files{hint}."
        ) from error


def _factor(explicit: dict[str, Any]) -> int:
    """Returns by which factor the caller's image size may enlarge a model.

    An allowance: the kernels of Mixers, with a weight for each patch, grow most.
    """
    return 16 if {"image_size", "window_size"} & explicit.keys() else 2


def _fresh_heads(shapes: Iterable[tuple[int, ...]], explicit: dict[str, Any]) -> int:
    """Returns the largest number of weights in fresh heads."""
    widest = max((side for shape in shapes for side in shape), default=0)
    classes = integer("num_classes", explicit.get("num_classes") or 0, 0)
    return 2 * classes * min(widest, MAX_WIDTH)


@contextmanager
def checked_while_read(checkpoint: Checkpoint) -> Iterator[None]:
    """Context manager that checks the SHA-256 of a checkpoint while it is read.

    A second thread hashes the open file, which takes about a second for 1 to 2 GB.
    Meanwhile the block can load the tensors from the same file.

    Raises:
        CheckpointError: The hash differs from that of an earlier check of the file, or
            from the hash in the config.json beside it.
    """
    stated = checkpoint.stated_sha256
    if not (stated or checkpoint.known_hash):
        yield
        return
    with ThreadPoolExecutor(1) as other:
        hashing = other.submit(checkpoint.sha256)
        try:
            yield
        finally:  # a wrong hash replaces other errors, because it explains them
            _compare(checkpoint, hashing.result(), stated)


def _compare(checkpoint: Checkpoint, found: str, written: str) -> None:
    path, folder = checkpoint.path, checkpoint.path.parent
    if checkpoint.known_hash not in (None, found):
        raise CheckpointError(
            f"{path} is not the file that was checked before: its hash is {found} "
            f"instead of {checkpoint.known_hash}. It was replaced or damaged: load it "
            "again."
        )
    if written not in ("", found):
        raise CheckpointError(
            f"{path} does not match the config.json beside it: its hash is {found} "
            f"instead of {written}. A save was stopped between the two files, or they "
            "come from two saves: save the model again, or use both files of one save. "
            "Only if you changed the tensors yourself, remove `weights_sha256` from "
            f"config.json.{former_save(folder)}"
        )


def retried(weights: GivenWeights, load: Callable) -> keras.Model:
    """Calls `load()`, a second time if it fails and the folder was saved meanwhile.

    A save replaces two files, one after the other. A load between the two replacements
    reads files of two saves.

    Args:
        weights: Path of a file or folder. Other weights are loaded once.
        load: Function without arguments.
    """
    before = _stamps(weights)
    try:
        return load()
    except CheckpointError:
        if _stamps(weights) == before:
            raise
    time.sleep(0.1)  # the save still renames the second file
    return load()


def _stamps(weights: GivenWeights) -> list[tuple[int, ...] | None] | None:
    if not isinstance(weights, (str, os.PathLike)) or "://" in os.fspath(weights):
        return None
    path = path_of(os.fspath(weights))
    folder = path if path.is_dir() else path.parent
    return [stamp(file) for file in (path, folder / TENSORS, folder / CONFIG)]


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
    file: Adapters,
    *,
    left_out: Collection[str] = (),
    **options: Any,
) -> None:
    """Attaches the adapters of a file to a model and assigns its tensors.

    Args:
        model: `ImageModel` without adapters. It is unchanged if an error is raised.
        file: `Adapters` in a file.
        left_out: Names of layers that keep their values.
        options: Options of `Adapters.assign`.

    Raises:
        CheckpointError: The file belongs to a model of other layers or shapes.
    """
    settings = dict(file.settings)
    settings["trained"] = [p for p in settings["trained"] if p not in left_out]
    layers = dense_layers(model)
    for path in settings["layers"]:
        rank, _ = rank_and_alpha(settings, path)
        if path in layers and rank > min(layers[path].kernel.shape):
            raise CheckpointError(
                f"{file.path} has adapters of rank {rank}, larger than a kernel of "
                f"{model.name}. They belong to another model."
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
