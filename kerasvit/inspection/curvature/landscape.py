"""The loss of a model along one direction, or on a plane, around its weights."""

import hashlib
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.backend.forward import array_of
from kerasvit.types import Tensor

from .directions import check_direction, random_direction
from .mean_loss import Loss, LossAt, batches, chosen_variables

GRID = np.linspace(-1, 1, 21)  # for each direction


@dataclass(frozen=True)
class Landscape:
    """The mean loss at the points of a grid around a model's weights.

    Args:
        loss: Array (A,) or (A, B): `loss[i, j]` is L(w + a_i·d₀ + b_j·d₁).
        grid: The multiples a, (A,), of the first direction and b, (B,), of the second;
            0 is the model.
    """

    loss: np.ndarray
    grid: tuple[np.ndarray, ...]


def landscape(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    directions: Sequence[Mapping[str, Any]] | None = None,
    grid: Sequence[Any] | None = None,
    path: str | os.PathLike[str] | None = None,
    batch_size: int = 32,
) -> Landscape:
    """Returns the loss along one direction, or on the plane of two.

        flat = kerasvit.inspection.landscape(sam, x, y, loss)
        sharp = kerasvit.inspection.landscape(plain, x, y, loss)
        kerasvit.inspection.plot_landscape({"SAM": flat, "plain": sharp})

    A point costs one forward pass over the samples: 21 × 21 points are 441. Besides the
    model, the weights, the directions and the values of a point are on the device.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`, and is
            not changed. Statistics of batch normalisation stay as they are, unless a
            direction has them.
        x: Inputs (N, ...), or an iterable of batches (x, y), which must be the same
            each time.
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function. None: the loss that the model is
            compiled with.
        directions: One or two of {path: array}, from `random_direction`,
            `direction_between` or `Hessian.split` of an eigenvector. None: two random
            ones, filter-normalised, with seeds 0 and 1. For two models on the same
            directions, give the same to both.
        grid: Multiples of each direction, one ascending array for each. None: 21 from
            −1 to 1.
        path: File in which each point is stored when it is computed. A call with the
            same arguments goes on with the points that it lacks. A function as the
            loss is compared with that of the file by its name.
        batch_size: Number of samples per pass; it does not change the result.

    Returns:
        `Landscape`.

    Raises:
        ValueError: As for `Hessian`; a direction does not fit the model; the grid is
            not of one array for each direction; the loss at a point is not finite; the
            file is one of other weights, directions, samples, loss or grid.

    Reference: Li et al. 2018, arXiv 1712.09913; between two models, Goodfellow et al.
    2015, arXiv 1412.6544.
    """
    chosen_variables(model)  # raises for a model that is frozen or quantised
    if directions is None:
        directions = [random_direction(model, seed=seed) for seed in (0, 1)]
    axes = _axes(directions, grid)
    moved = _moved(model, directions)
    data = batches(x, y, batch_size)
    at = LossAt(model, moved, loss)
    start = at.values()
    steps = [_tensors(direction, moved) for direction in directions]
    shape = tuple(len(axis) for axis in axes)
    file = path and _File(Path(path), _fingerprint(model, steps, axes, data, at.name))
    found = file.read(shape) if file else np.full(shape, np.nan)
    for index in map(tuple, np.argwhere(np.isnan(found))):
        point = [float(axis[i]) for axis, i in zip(axes, index, strict=True)]
        values = start
        for multiple, step in zip(point, steps, strict=True):
            values = [v + multiple * s for v, s in zip(values, step, strict=True)]
        found[index] = at.value(values, data())
        if not np.isfinite(found[index]):
            raise ValueError(
                f"The loss must be finite. Received: {found[index]} at the multiples "
                f"{point} of the directions. Check the samples and the weights, or "
                "take a smaller `grid`."
            )
        if file:
            file.write(found)
    return Landscape(found, axes)


def norm_landscape(
    model: keras.Model,
    directions: Sequence[Mapping[str, Any]],
    grid: Sequence[Any] | None = None,
) -> Landscape:
    """Returns the sum of the norms of a model's trainable variables around them.

    how-do-vits-work adds the weight decay times Σ ‖w‖₂, not squared, to the loss:

        nll = landscape(model, x, y, loss, directions=directions)
        l2 = norm_landscape(model, directions)
        Landscape(nll.loss + 1e-4 * l2.loss, nll.grid)

    Args:
        model: Built `keras.Model`.
        directions: As for `landscape`.
        grid: As for `landscape`.

    Returns:
        `Landscape`, whose `loss` is the sum, in units of weights.

    Raises:
        ValueError: As for `landscape`.

    Reference: `ops/norm.py` and `ops/loss_landscapes.py` of xxxnell/how-do-vits-work.
    """
    axes = _axes(directions, grid)
    _moved(model, directions)  # checks the directions
    multiples = np.stack(np.meshgrid(1.0, *axes, indexing="ij"), axis=-1)[0]
    total = np.zeros(multiples.shape[:-1])
    for variable in chosen_variables(model):
        zero = np.zeros(variable.shape)
        terms = [array_of(variable)]
        terms += [direction.get(variable.path, zero) for direction in directions]
        rows = np.array([np.ravel(term) for term in terms], "float64")
        squares = np.einsum("...i,ij,...j", multiples, rows @ rows.T, multiples)
        total += np.sqrt(np.maximum(squares, 0))
    return Landscape(total, axes)


def _axes(directions: Any, grid: Any) -> tuple[np.ndarray, ...]:
    if isinstance(directions, Mapping) or not 1 <= len(directions) <= 2:
        raise ArgumentError(
            "`directions` must be a list of one or two directions. Received: "
            f"{type(directions).__name__} of {len(directions)}.",
            "directions",
        )
    if grid is None:
        grid = [GRID] * len(directions)
    axes = tuple(np.asarray(axis, "float64") for axis in grid)
    if len(axes) != len(directions) or not all(
        axis.ndim == 1 and len(axis) and np.isfinite(axis).all() for axis in axes
    ):
        raise ArgumentError(
            f"`grid` must be a list of {len(directions)} arrays of finite numbers, one "
            f"for each direction. Received: shapes {[axis.shape for axis in axes]}.",
            "grid",
        )
    if not all((np.diff(axis) > 0).all() for axis in axes):
        raise ArgumentError(
            f"`grid` must be ascending. Received: {axes!r:.200}.", "grid"
        )
    return axes


def _moved(
    model: keras.Model, directions: Sequence[Mapping[str, Any]]
) -> list[keras.Variable]:
    """Returns the variables that a direction has."""
    known = {variable.path: variable for variable in model.variables}
    for direction in directions:
        check_direction(direction, known)
    paths = {path for direction in directions for path in direction}
    moved = [variable for variable in model.variables if variable.path in paths]
    if len(moved) > len(paths):
        raise ArgumentError(
            "The variables of `model` must have different paths. Received: "
            f"{len(moved)} variables of {len(paths)} paths. Give the layers names.",
            "model",
        )
    return moved


def _tensors(
    direction: Mapping[str, Any], variables: list[keras.Variable]
) -> list[Tensor]:
    """Returns a direction as tensors, zero for variables that it has not."""
    return [
        ops.convert_to_tensor(np.asarray(direction[v.path], v.dtype))
        if v.path in direction
        else ops.zeros(v.shape, v.dtype)
        for v in variables
    ]


def _fingerprint(
    model: keras.Model, steps: list[list[Tensor]], axes: Any, data: Any, loss: str
) -> str:
    """Returns a hash of all that determines a landscape."""
    digest = hashlib.sha256(loss.encode())
    for part in ([model.weights, steps, list(axes)], *data()):
        for value in keras.tree.flatten(part):
            array = np.ascontiguousarray(ops.convert_to_numpy(value))
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class _File:
    """A file of losses, NaN at points that are not computed yet."""

    path: Path
    fingerprint: str

    def read(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the losses of the file, or NaN if there is none.

        Raises:
            ArgumentError: The file is another one, or its folder does not exist.
        """
        if not self.path.parent.is_dir():
            raise ArgumentError(
                f"`path` must be in a folder that exists. Received: "
                f"{os.fspath(self.path)!r}.",
                "path",
            )
        if not self.path.exists():
            return np.full(shape, np.nan)
        if zipfile.is_zipfile(self.path):
            with np.load(self.path) as stored:
                if str(stored.get("fingerprint")) == self.fingerprint:
                    return stored["loss"]
        raise ArgumentError(
            "`path` must be a file of the same weights, directions, grid, samples, "
            f"batch size and loss. Received: {os.fspath(self.path)!r}, of others. "
            "Choose another path, or remove the file.",
            "path",
        )

    def write(self, loss: np.ndarray) -> None:
        """Replaces the file at once: a stopped process leaves a whole one."""
        new = self.path.with_name(self.path.name + ".new")
        with open(new, "wb") as file:
            np.savez(file, loss=loss, fingerprint=self.fingerprint)
        os.replace(new, self.path)
