"""Merges the arguments of the weights, the variant and the caller into one plan."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kerasvit.arguments import (
    MAX_CHANNELS,
    ArgumentError,
    Size,
    cells_of,
    integer,
    patch_sides,
    patch_size,
)
from kerasvit.checkpoints import (
    CheckpointError,
    Description,
    printable,
    resampling_kernel,
)
from kerasvit.layers.position_embedding import table_grid
from kerasvit.preprocessing import Preprocessing
from kerasvit.types import PatchSize

from .request import Request, VariantLike, check_count
from .transforms import (
    default_transform,
    for_channels,
    stated_transform,
    with_normalization,
)

# Layers whose tensors depend on the number of classes.
HEADS = ("head", "head_distillation")
# Arguments of which a model of a variant can have any value: sizes that its user
# chooses, in what versions of a model differ, and values that training uses or learns.
_FREE = (
    *("num_classes", "register_tokens", "qkv_bias", "layer_scale"),
    "stochastic_depth",
)


@dataclass(frozen=True)
class Plan:
    """The arguments of a model and the tensors to load into it.

    Attributes:
        kwargs: All arguments of the builder.
        record: Fields of `ImageModel.record`: `variant`, `preprocessing`, and for
            loaded weights `origin`, `label_names`, `problem_type`,
            `calibration`, `kernel` and `base`.
        explicit: Names of the arguments in `kwargs` that the caller stated.
        source_size: (height, width) in pixels for which the weights were trained.
        source_stride: Distance between neighbouring patches in pixels for which they
            were trained.
        stride: The same of the model, if the caller states a `patch_size`.
        source_grid: Grid of the position table that the caller stated, or None.
        kernel: Kernel to resample tables of another grid.
        left_out: Names of layers whose tensors are not loaded.
        stated_transform: Transform that the files or the catalogue state, or None.
        transform_note: Warning that the transform was assumed, or "".
        notes: Other warnings on assumptions and on tensors that are not loaded.
    """

    kwargs: dict[str, Any]
    record: dict[str, Any]
    explicit: frozenset[str] = frozenset()
    source_size: Size = Size((0, 0))
    source_stride: PatchSize = 1
    stride: PatchSize = 1
    source_grid: tuple[int, int] | None = None
    kernel: str = ""
    left_out: tuple[str, ...] = ()
    stated_transform: Preprocessing | None = None
    transform_note: str = ""
    notes: tuple[str, ...] = ()


def resolve(description: Description, variant: VariantLike, request: Request) -> Plan:
    """Returns the plan to build a variant for a checkpoint.

    The caller's arguments override the others. The function is pure: it reads no file
    and logs nothing.

    Args:
        description: Description of the checkpoint.
        variant: `Variant` to build.
        request: Arguments that the caller states.

    Raises:
        CheckpointError: The weights belong to another variant, or their configuration
            is invalid.
        ValueError: An argument of the caller is wrong or does not fit the weights.
    """
    _check_builder(description, variant)
    trained, kwargs = _merged(description, variant, request)
    values = {**trained, **description.numbers}
    path, explicit = description.path, request.arguments
    if mismatch := explain_mismatch(variant, values, explicit):
        raise CheckpointError(f"{path} {mismatch}")
    stated, transform_size = _stated(description, request)
    with file_in_errors(path, kwargs, explicit):
        before, stride = _strides(description, {**variant.numbers, **values}, explicit)
        source_size = source_size_of(
            description, transform_size, kwargs, trained, request.source_grid, stride
        )
        if Size.of(kwargs["image_size"], any_size=True).is_any:
            kwargs = with_resampling(kwargs, request, source_size, description.kernel)
        elif "image_size" not in request.arguments:
            kwargs["image_size"] = source_size
        kwargs, transform, note = _transformed(
            description, stated, variant, request, kwargs, source_size
        )
    left_out, notes = _left_out(path, trained, kwargs)
    names = _label_names(description, trained, kwargs, request)
    check_count(request.label_names, kwargs["num_classes"])
    record = {
        "variant": variant.name,
        "preprocessing": transform.to_config(),
        "origin": description.code_base,
        "label_names": names,
    }
    if description.problem_type and kwargs["num_classes"] == trained["num_classes"]:
        record["problem_type"] = description.problem_type
    if description.calibration and kwargs["num_classes"] == trained["num_classes"]:
        record["calibration"] = description.calibration
    own = resampling_kernel(description.code_base, description.builder)
    if description.kernel != own:
        record["kernel"] = description.kernel  # of this file only
    return Plan(
        kwargs=kwargs,
        record={**record, "base": description.base} if description.base else record,
        stated_transform=stated,
        explicit=frozenset(request.arguments),
        source_size=source_size,
        source_stride=before,
        stride=stride,
        source_grid=request.source_grid,
        kernel=request.kernel or description.kernel,
        left_out=left_out,
        transform_note=note,
        notes=(*_assumptions(description, kwargs, request.arguments), *notes),
    )


def plan_fresh(variant: VariantLike, request: Request) -> Plan:
    """Returns the plan to build a variant with fresh weights."""
    if request.state is not None:
        raise ValueError(
            "`state` chooses one of several models in a file: pass `weights`, too. "
            f"Received: {request.state!r:.200}."
        )
    own = variant.size
    sized = {**variant.defaults, "image_size": own}
    kwargs = {**sized, **variant.numbers, **request.arguments}
    stated = request.transform(kwargs["image_size"], own)
    stated = stated and for_channels(stated, kwargs.get("channels", 3))
    check_count(request.label_names, kwargs["num_classes"])
    if kwargs["image_size"].is_any:
        kernel = resampling_kernel(None, variant.builder.__name__)
        kwargs = with_resampling(kwargs, request, own, kernel)
    kwargs, transform = with_normalization(
        kwargs,
        stated or Preprocessing(own, **variant.evaluation),
        request.include_preprocessing,
        given=stated is not None,
    )
    record = {"variant": variant.name, "preprocessing": transform.to_config()}
    if request.label_names:
        record["label_names"] = request.label_names
    return Plan(kwargs, record)


@contextmanager
def file_in_errors(
    path: str, kwargs: dict[str, Any], explicit: Iterable[str]
) -> Iterator[None]:
    """Context manager that attributes wrong arguments to the file or the caller.

    Raises:
        CheckpointError: Replaces an `ArgumentError` for arguments that the caller did
            not state.
    """
    try:
        yield
    except ArgumentError as error:
        wrong = set(error.arguments)
        if wrong & kwargs.keys() and not wrong & set(explicit):
            raise CheckpointError(
                f"{path}, or the configuration beside it, describes a model that "
                f"kerasvit cannot build: {error}"
            ) from error
        raise


def _check_builder(description: Description, variant: VariantLike) -> None:
    expected = variant.builder.__name__
    if expected != description.builder:
        origin = "folders" if description.saved else description.code_base
        raise CheckpointError(
            f"{description.path} holds a {printable(description.builder)}, in the "
            f"names of {origin}, not the {expected} of {variant.label}. Build the "
            "variant of the file: kerasvit.list_models() lists all, and "
            "kerasvit.from_pretrained opens what save_pretrained wrote."
        )


def _merged(
    description: Description, variant: VariantLike, request: Request
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (arguments of the trained model, arguments of the new model)."""
    trained = {
        **variant.defaults,
        "image_size": variant.size,
        **description.arguments,
    }
    variant.check_names(
        {printable(key): value for key, value in trained.items()},
        f"{description.path}, of a newer kerasvit: ",
    )
    kwargs = {**trained, **variant.numbers, **request.arguments}
    if missing := sorted(variant.required - set(kwargs)):
        raise CheckpointError(
            f"{description.path} does not state {', '.join(missing)}. Build the "
            "variant of the file, such as kerasvit.ViTB16(weights=...)."
        )
    return trained, kwargs


def _stated(
    description: Description, request: Request
) -> tuple[Preprocessing | None, Size | None]:
    """Returns (transform that a description states, its size if that is the weights').

    Raises:
        CheckpointError: It is invalid, and the caller states no other.
    """
    stated = description.preprocessing
    if stated is None:
        return None, None
    try:
        transform = stated_transform(description, stated)
    except CheckpointError:
        if request.preprocessing is None:
            raise
        return None, None
    return transform, Size(transform.size) if stated.sized else None


def _transformed(
    description: Description,
    own: Preprocessing | None,
    variant: VariantLike,
    request: Request,
    kwargs: dict[str, Any],
    source_size: Size,
) -> tuple[dict[str, Any], Preprocessing, str]:
    """Returns (kwargs with one normalisation, transform, warning or "")."""
    channels = integer("channels", kwargs.get("channels", 3), 1, MAX_CHANNELS)
    stated = request.transform(kwargs["image_size"], source_size)
    stated = stated and for_channels(stated, channels)
    note, transform = "", stated or own
    if transform is None:
        transform, note = default_transform(
            description, variant.evaluation, source_size
        )
    if not (stated or description.saved):
        transform = transform.with_size(source_size)
    if channels != transform.channels:
        note = (
            f"{note} Means and deviations are averages over those of the "
            f"{transform.channels} channels of the weights. Those of your images: "
            "model.preprocessing = images.train.measured(model.preprocessing)."
        ).lstrip()
    include = request.include_preprocessing
    kwargs, transform = with_normalization(
        kwargs, transform, include, given=stated is not None
    )
    return kwargs, transform, note


def _strides(
    description: Description, trained: dict[str, Any], explicit: dict[str, Any]
) -> tuple[PatchSize, PatchSize]:
    """Returns the strides of patches of the trained and of the new model.

    Args:
        description: Description of the checkpoint.
        trained: Arguments of the trained model.
        explicit: Arguments that the caller stated.
    """
    stride = description.grid.stride if description.grid else description.stride
    if "patch_size" not in explicit:
        return stride, stride
    before = patch_size("patch_size", trained["patch_size"])
    sides = map(patch_sides, (stride, explicit["patch_size"], before))
    height, width = (step * new // old for step, new, old in zip(*sides, strict=True))
    return stride, (height, width)


def _left_out(
    path: str, trained: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (layers whose tensors are not loaded, warnings about them)."""
    layers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    before, after = trained["num_classes"], kwargs["num_classes"]
    if after != before:
        layers += HEADS
        new = f"a fresh head of zeros for {after} classes" if after else "no head"
        old = f"the head for {before}" if before else "no head"
        notes += (f"{path}: {new} instead of {old}.",)
    size = "representation_size"
    if trained.get(size) and not kwargs.get(size):
        layers += ("pre_logits",)
        notes += (f"{path}: its pre-logits are not loaded.",)
    return layers, notes


def _label_names(
    description: Description,
    trained: dict[str, Any],
    kwargs: dict[str, Any],
    request: Request,
) -> list[str] | str | None:
    """Returns the names of the model's classes, or None."""
    if request.label_names:  # checked when they were read
        return request.label_names
    count, names = kwargs["num_classes"], description.label_names
    if not count or count != trained["num_classes"]:
        return None
    listed = isinstance(names, list) and len(names) == count
    listed = listed and all(isinstance(name, str) for name in names)
    if not listed and names not in (None, "imagenet1k"):
        raise CheckpointError(
            f"{description.path}: its configuration must name {count} classes. "
            f"Received: {names!r:.200}. Correct `label_names` or `id2label` there."
        )
    return names


def _assumptions(
    description: Description, kwargs: dict[str, Any], explicit: Iterable[str]
) -> tuple[str, ...]:
    """Returns a warning on arguments that neither the files nor the caller state."""
    names = [key for key in description.open_arguments if key in kwargs.keys()]
    names = [key for key in names if key not in explicit]
    assumed = [f"{key}={kwargs[key]!r}" for key in names] + [*description.assumptions]
    if not assumed:
        return ()
    stated = ", ".join(f"{key}=" for key in names)
    ways = [f"pass {stated} to the call"] if names else []
    if description.code_base in ("timm", "transformers"):
        ways.append("put the config.json of the model beside the file")
    hint = f" If it differs, {', or '.join(ways)}." if ways else ""
    return (
        f"{description.path} does not state all that the model computes. Assumed: "
        f"{', '.join(assumed)}.{hint}",
    )


def source_size_of(
    description: Description,
    transform_size: Size | None,
    kwargs: dict[str, Any],
    trained: dict[str, Any],
    source_grid: tuple[int, int] | None,
    stride: PatchSize,
) -> Size:
    """Returns (height, width) in pixels for which the weights were trained.

    Args:
        description: Description of the checkpoint.
        transform_size: Size of the images that the weights were trained with, as the
            stated transform has it, or None.
        kwargs: Arguments of the builder, including those of the caller.
        trained: Arguments of the builder with which the weights were trained.
        source_grid: (height, width) in patches that the caller stated, or None.
        stride: Distance between neighbouring patches of the new model in pixels.

    Raises:
        CheckpointError: The position table contradicts the configuration or does not
            determine the size.
    """
    stated, grid = description.image_size, description.grid
    # The image size of a Swin follows from its windows.
    windows = description.arguments.get("image_size")
    likely = stated or windows or transform_size
    if grid is None:
        return likely or trained["image_size"]
    positions = kwargs.get("positions", "tokens")
    cells, partial = grid.cells(positions), bool(kwargs.get("partial_patches"))
    step = patch_sides(grid.stride)
    if likely and not source_grid:
        if math.prod(cells_of(likely, grid.stride, partial)) == cells:
            return likely
    hint = ""
    if "positions" in kwargs:
        hint = (
            f" This assumes positions={positions!r}. Pass `positions` to state whether "
            "class and register tokens have rows."
        )
    name = f"{printable(grid.tensor)} of {description.path}"
    if stated and not source_grid:
        raise CheckpointError(
            f"{name} has {cells} patch rows, of {step[0]} × {step[1]} pixels each, but "
            f"its configuration states images of {stated[0]} × {stated[1]}. Correct "
            f"the configuration, or pass `source_grid`.{hint}"
        )
    try:
        source = table_grid(
            cells,
            own_grid=cells_of(kwargs["image_size"], stride, partial),
            source_grid=source_grid,
            name=name,
        )
    except ValueError as error:
        raise CheckpointError(f"{error}{hint}") from error
    return Size(side * each for side, each in zip(source, step, strict=True))


def with_resampling(
    kwargs: dict[str, Any], request: Request, size: Size, kernel: str
) -> dict[str, Any]:
    """Adds the argument `resampling` of a model for images of any size.

    Args:
        kwargs: Arguments of the builder.
        request: Arguments that the caller states.
        size: Image size of the position table.
        kernel: Kernel of the code base of the weights.
    """
    if "resampling" not in kwargs or "resampling" in request.arguments:
        return kwargs
    table = {"kernel": kernel, **(kwargs["resampling"] or {}), "image_size": size}
    if request.kernel:
        table["kernel"] = request.kernel
    return {**kwargs, "resampling": table}


def fits(variant: VariantLike, values: dict[str, Any]) -> bool:
    """Returns whether the arguments that files state fit a variant.

    Numbers that the files do not state fit. An argument that replaces a default of the
    builder must be stated and equal; of `num_classes`, `register_tokens`, `qkv_bias`,
    `layer_scale` and `stochastic_depth` any value fits, and any image size.

    Args:
        variant: `Variant` to compare with.
        values: Arguments of its builder that the files state.
    """
    numbers = variant.numbers
    replaced = {k: v for k, v in variant.arguments.items() if k not in numbers}
    if any(values.get(key, number) != number for key, number in numbers.items()):
        return False
    replaced.pop("image_size", None)
    return all(
        key in values
        and (values[key] == value or (key in _FREE and values[key] is not None))
        for key, value in replaced.items()
    )


def explain_mismatch(
    variant: VariantLike, values: dict[str, Any], explicit: dict[str, Any]
) -> str:
    """Returns how the numbers of files differ from a variant; "" if they do not.

    Args:
        variant: `Variant` to compare with.
        values: Arguments of its builder that the files state.
        explicit: Arguments of the builder that the caller stated.
    """
    # The kernel of patches is resampled to the size that the caller states, and
    # positions to the patches.
    free = ("patch_size", "stride")
    changed = {k: v for k, v in explicit.items() if k not in free}
    expected = {**variant.numbers, **changed}
    # Files contain lists and no tuples.
    expected = {k: list(v) if isinstance(v, tuple) else v for k, v in expected.items()}
    wrong = [
        key for key in variant.numbers if key in values and values[key] != expected[key]
    ]
    if not wrong:
        return ""
    others = [each for each in variant.siblings if each is not variant]
    fitting = [str(other.name) for other in others if fits(other, values)]
    numbers = ", ".join(f"{key} {values[key]}, not {expected[key]}" for key in wrong)
    if fitting:
        names = " or ".join(fitting)
        it = f"holds weights of a {names}, not of {variant.label}: {numbers}. "
        return printable(f"{it}Build {names} with it.")
    return printable(f"does not hold weights of {variant.label}: {numbers}.")
