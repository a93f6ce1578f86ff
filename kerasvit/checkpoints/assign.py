"""Assigns all tensors of a checkpoint to a model, or raises one complete error."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias

import keras
import numpy as np

from .key_map import SAME, KeyMap, Transform
from .quoting import printable
from .reader import CheckpointError

Grids: TypeAlias = Mapping[str, tuple[int, int]]
Resampled: TypeAlias = Callable[[str, np.ndarray], np.ndarray]


class Tensors(Protocol):
    """What `assign` uses of a `Checkpoint`; `path` is for messages."""

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
    without: Collection[str] = (),
    source_grids: Grids | None = None,
    kernel: str | None = None,
) -> None:
    """Assigns the tensors of a checkpoint to a model.

    All names and shapes are compared before the first variable is written. Then the
    tensors are read one after another, so that there is no second copy of them all; one
    that proves to be damaged leaves a model to throw away.

    Args:
        model: Built `keras.Model`.
        checkpoint: `Checkpoint`: names, shapes and arrays.
        key_map: `KeyMap` from its names to the model's variable paths.
        without: Layers, by name, that keep their fresh values and whose tensors, if the
            file has some, are left out.
        source_grids: {layer: (h, w)}: the grids that its tables were made for; or None.
        kernel: Resampling kernel for a table of another grid.

    Raises:
        CheckpointError: Something is missing, unexpected, of another shape or there
            twice; the message lists all of it by the file's names. Or a tensor cannot
            be read, or holds NaN.
    """
    variables = {
        variable.path: variable
        for variable in model.weights
        if not variable.path.startswith(tuple(f"{name}/" for name in without))
    }
    resampled = _resampling(model, source_grids or {}, kernel)
    places, problems = _places(checkpoint, key_map, variables, without, resampled)
    if any(problems.values()):
        raise CheckpointError(_complaint(checkpoint, problems))

    def write(name: str) -> None:
        paths, transform = key_map.find(name)  # type: ignore[misc]  # it is known
        for path, array in zip(paths, transform.read(checkpoint[name]), strict=True):
            variables[path].assign(resampled(path, array))

    for name in dict.fromkeys(places.values()):
        write(name)  # a function: its arrays are gone before the next are read


def _places(
    checkpoint: Tensors,
    key_map: KeyMap,
    variables: dict[str, Any],
    without: Collection[str],
    resampled: Resampled,
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns {variable path: tensor name} and {kind of problem: cases}."""
    sources: dict[str, str] = {}
    unexpected, misshaped, twice = [], [], []
    for name, shape in checkpoint.shapes.items():
        paths, transform = key_map.find(name) or ([], SAME)
        if paths and all(path.split("/")[0] in without for path in paths):
            continue
        if not paths or any(path not in variables for path in paths):
            unexpected.append(f"{printable(name)} {tuple(shape)}")
            continue
        for path in paths:
            if (first := sources.setdefault(path, name)) != name:
                twice.append(f"{printable(first)} and {printable(name)}: {path}")
        for path, array in zip(paths, _outlines(transform, shape, paths), strict=True):
            wanted = tuple(variables[path].shape)
            fits = array is not None and array.ndim == len(wanted)
            if not fits or resampled(path, array).shape != wanted:
                misshaped.append(
                    f"{printable(name)} {tuple(shape)}: the model's {path} is {wanted}"
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
    """Returns a function that resamples arrays of layers with a grid."""
    owners = {
        variable.path: layer
        for layer in model.layers
        if hasattr(layer, "resample")
        for variable in layer.weights
    }

    def resampled(path: str, array: np.ndarray) -> np.ndarray:
        if path not in owners:
            return array
        grid = source_grids.get(owners[path].name)
        return owners[path].resample(array, path=path, source_grid=grid, kernel=kernel)

    return resampled


def _outlines(
    transform: Transform, shape: tuple[int, ...], paths: list[str]
) -> list[Any]:
    """Returns arrays without memory in the shapes after a transform, or None."""
    try:
        return transform.read(np.broadcast_to(np.float32(0), shape))
    except (ValueError, IndexError):
        # A layout that the transform cannot take apart has another rank or size.
        return [None] * len(paths)


def _complaint(checkpoint: Tensors, problems: dict[str, list[str]]) -> str:
    lines = [f"{checkpoint.path} does not fit the model; nothing was loaded."]
    for title, names in problems.items():
        if names:
            lines += [f"{title} ({len(names)}):"] + [f"  {name}" for name in names]
    return "\n".join(lines)
