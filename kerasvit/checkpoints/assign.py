"""Assigns all tensors of a checkpoint to a model, or raises one complete error."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias

import keras
import numpy as np

from .key_map import SAME, KeyMap, Transform
from .reader import CheckpointError, printable

Grids: TypeAlias = Mapping[str, tuple[int, int]]
Resampled: TypeAlias = Callable[[str, np.ndarray], np.ndarray]


class Tensors(Protocol):
    """The part of `Checkpoint` that `assign` uses; `path` is for messages."""

    @property
    def path(self) -> object: ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def __getitem__(self, name: str) -> np.ndarray: ...


def assign(
    model: keras.Model,
    checkpoint: Tensors,
    key_map: KeyMap,
    *,
    left_out: Collection[str] = (),
    source_grids: Grids | None = None,
    kernel: str | None = None,
) -> None:
    """Assigns the tensors of a checkpoint to a model.

    The function compares all names and shapes before it writes the first variable.
    Then it reads one tensor at a time, so that memory never holds a second copy of all
    tensors. If a tensor is damaged, the model is partly written and must be discarded.

    Args:
        model: Built `keras.Model`.
        checkpoint: `Checkpoint` with names, shapes and arrays.
        key_map: `KeyMap` from tensor names to the model's variable paths.
        left_out: Names of layers that keep their initial values. Tensors of these
            layers are ignored.
        source_grids: {layer name: (height, width)} of the grids for which the tables
            in the file were trained, or None.
        kernel: Resampling kernel for tables of another grid size.

    Raises:
        CheckpointError: Tensors are missing, unexpected, duplicated or of another
            shape; the message lists all of them by their names in the file. Or a
            tensor cannot be read, contains NaN, or is int8 where the model is not.
    """
    variables = {
        variable.path: variable
        for variable in model.weights
        if not variable.path.startswith(tuple(f"{name}/" for name in left_out))
    }
    resampled = _resampling(model, source_grids or {}, kernel)
    sources, problems = _matches(checkpoint, key_map, variables, left_out, resampled)
    if any(problems.values()):
        raise CheckpointError(_complaint(checkpoint, problems))

    def write(name: str) -> None:
        paths, transform = key_map.find(name)  # type: ignore[misc]  # it is known
        for path, array in zip(paths, transform.read(checkpoint[name]), strict=True):
            _check_dtype(checkpoint, name, array, variables[path])
            variables[path].assign(resampled(path, array))

    for name in dict.fromkeys(sources.values()):
        write(name)  # the function frees its arrays before the next ones are read


def _check_dtype(
    checkpoint: Tensors, name: str, array: np.ndarray, variable: keras.Variable
) -> None:
    """Raises if only one of an array and its variable is a quantised kernel."""
    wanted = keras.backend.standardize_dtype(variable.dtype)
    if (array.dtype == np.int8) != (wanted == "int8"):
        raise CheckpointError(
            f"{checkpoint.path} holds {array.dtype} in {printable(name)}; the model's "
            f"{variable.path} is {wanted}. Quantised weights are read from complete "
            "folders that save_pretrained wrote, whose config.json states them."
        )


def _matches(
    checkpoint: Tensors,
    key_map: KeyMap,
    variables: dict[str, Any],
    left_out: Collection[str],
    resampled: Resampled,
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns {variable path: tensor name} and {kind of problem: cases}."""
    sources: dict[str, str] = {}
    unexpected, misshaped, twice = [], [], []
    for name, shape in checkpoint.shapes.items():
        paths, transform = key_map.find(name) or ([], SAME)
        if paths and all(path.split("/")[0] in left_out for path in paths):
            continue
        if not paths or any(path not in variables for path in paths):
            if 0 in shape:  # of a part that the model does not have
                continue
            unexpected.append(f"{printable(name)} {tuple(shape)}")
            continue
        for path in paths:
            if (first := sources.setdefault(path, name)) != name:
                twice.append(f"{printable(first)} and {printable(name)}: {path}")
        for path, array in zip(paths, _outlines(transform, shape, paths), strict=True):
            target = tuple(variables[path].shape)
            fits = array is not None and array.ndim == len(target)
            if not fits or resampled(path, array).shape != target:
                misshaped.append(
                    f"{printable(name)} {tuple(shape)}: the model's {path} is {target}"
                )
    missing = [
        f"{key_map.name(path) or path} for {path} {tuple(variables[path].shape)}"
        for path in variables
        if path not in sources
    ]
    return sources, {
        "missing in the file": missing,
        "unexpected: the model has no place for it": unexpected,
        "mis-shaped": misshaped,
        "two tensors for one variable": twice,
    }


def _resampling(
    model: keras.Model, source_grids: Grids, kernel: str | None
) -> Resampled:
    """Returns a function that fits arrays to images of another size or depth.

    It resamples those of layers that have a grid, or patches, and changes the number of
    channels of the kernel that sees the image.
    """
    methods = {
        path: functools.partial(
            method, source_grid=source_grids.get(layer.name), kernel=kernel
        )
        for layer in model.layers
        if hasattr(layer, "resamplers")
        for path, method in layer.resamplers().items()
    }

    kernels = (v for v in model.weights if len(v.shape) == 4)
    of_image = next(kernels, None)

    def resampled(path: str, array: np.ndarray) -> np.ndarray:
        if of_image is not None and path == of_image.path and array.ndim == 4:
            array = with_channels(array, of_image.shape[2])
        return methods[path](array) if path in methods else array

    return resampled


def with_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Returns a kernel for images of another number of channels.

    For one channel the present c are added: a grey image then gives what it gives when
    it is repeated c times. For others they are repeated or cut, and multiplied by
    c / channels, so that the mean of the output stays.

    Shape: (H, W, c, D) → (H, W, channels, D), the same dtype.

    Args:
        kernel: Array of floats.
        channels: Number of channels.

    Reference: timm/models/_manipulate.py `adapt_input_conv`.
    """
    present = kernel.shape[2]
    if channels == present:
        return kernel
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True, dtype=kernel.dtype)
    repeated = np.take(kernel, np.arange(channels) % present, axis=2)
    return (repeated * (present / channels)).astype(kernel.dtype)


def _outlines(
    transform: Transform, shape: tuple[int, ...], paths: list[str]
) -> list[Any]:
    """Returns zero-memory arrays of the shapes after a transform; None on failure."""
    try:
        return transform.read(np.broadcast_to(np.float32(0), shape))
    except (ValueError, IndexError):
        # The transform fails if the tensor has another rank or size.
        return [None] * len(paths)


def _complaint(checkpoint: Tensors, problems: dict[str, list[str]]) -> str:
    lines = [f"{checkpoint.path} does not fit the model; nothing was loaded."]
    for title, names in problems.items():
        if names:
            lines += [f"{title} ({len(names)}):"] + [f"  {name}" for name in names]
    return "\n".join(lines)
