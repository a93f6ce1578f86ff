"""Loading of a checkpoint into a model of a variant, in four steps."""

import json
import logging

import keras

from kerasvit import checkpoints
from kerasvit.arguments import ArgumentError, sides_or_any
from kerasvit.checkpoints import Checkpoint, CheckpointError, Description
from kerasvit.hub.download import PAGE
from kerasvit.loaded_card import WITHOUT_EFFECT, remember
from kerasvit.quantization import restore
from kerasvit.records import table_size

from .adapters import load_kept_adapters
from .catalogue import ZeroedHead, catalogue_entry, check_entry
from .find import GivenWeights, find
from .integrity import checked_while_read
from .limits import build
from .request import Request
from .resolve import (
    Plan,
    file_in_errors,
    plan_fresh,
    resolve,
)
from .source_size import cells_of
from .variant import VariantLike

log = logging.getLogger("kerasvit")


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
    checkpoint = find(entry or weights, variant.label)
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
            same=_same(model, plan, checkpoint.description, variant),
        )
    return model


def build_fresh(variant: VariantLike, request: Request) -> keras.Model:
    """Builds a variant with fresh weights.

    Raises:
        ValueError: An argument is wrong.
    """
    plan = plan_fresh(variant, request)
    model = variant.builder(**plan.kwargs)
    model.record.update(plan.record)
    return model


def _same(
    model: keras.Model, plan: Plan, description: Description, variant: VariantLike
) -> bool:
    """Returns whether a model computes what that of the files computes.

    It does not if the caller stated another size, transform or part of the network.
    """
    trained = {**variant.defaults, "image_size": plan.source_size}
    trained |= {**description.arguments, **variant.numbers}
    trained["image_size"] = sides_or_any(trained["image_size"])
    kwargs, names = model.record["kwargs"], plan.explicit & trained.keys()
    changed = [
        # As JSON, which has no tuples.
        json.dumps(kwargs[name]) != json.dumps(trained[name])
        for name in names - {*WITHOUT_EFFECT}
    ]
    transform = plan.record["preprocessing"]
    stated = description.transform.to_config() if description.transform else transform
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
    sizes = (plan.source_size, own)
    trained, built = (cells_of(size, plan.stride, partial) for size in sizes)
    return {
        layer.name: plan.source_grid
        or tuple(
            cells * then // now
            for cells, then, now in zip(layer.grid, trained, built, strict=True)
        )
        for layer in model.layers
        if hasattr(layer, "grid")
    }
