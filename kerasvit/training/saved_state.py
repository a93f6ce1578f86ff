"""Files with the whole state of a training: each is whole or does not exist.

The file of a state is a `.npz` archive: the values of all variables, and JSON.
"""

import dataclasses
import json
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasvit.backend import TrainStep

FORMAT = 2  # of the files
UNFINISHED = "unfinished.npz"
# What NumPy and zipfile raise for a file that is damaged or cannot be read.
DAMAGED: tuple[type[Exception], ...] = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile),
    *(NotImplementedError, RuntimeError),  # for flags in the archive
)


@dataclasses.dataclass
class SavedState:
    """The state of a training between two batches.

    Attributes:
        seed: Seed of the generators of Python, NumPy and PyTorch.
        epoch: Number of finished epochs.
        batch: Number of finished batches of the epoch after them.
        length: Number of batches of an epoch; None: not known.
        history: {name: one number for each finished epoch} of the logs.
        epochs: Numbers of these epochs, from 0.
        ended: Argument `epochs` of a `fit` that a callback has ended; None: none has.
        position: Number of batches of a trainer with `every`.
        kinds: {"model" or "optimizer": names of classes}.
        variables: {"model", "optimizer" or "metrics": path, shape and dtype of each}.
        arrays: {the same: NumPy arrays}. Those of metrics only inside an epoch.
    """

    seed: int
    epoch: int = 0
    batch: int = 0
    length: int | None = None
    history: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    epochs: list[int] = dataclasses.field(default_factory=list)
    ended: int | None = None
    position: int = 0
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    variables: dict[str, list] = dataclasses.field(default_factory=dict)
    arrays: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where the training is, for messages."""
        of = f" of {self.length:,}" if self.length else ""
        inside = f", batch {self.batch:,}{of} of the next" if self.batch else ""
        return f"after epoch {self.epoch:,}{inside}"


def groups_of(model: keras.Model) -> dict[str, list[keras.Variable]]:
    """Returns {"model", "optimizer" and "metrics": variables} of a model in `fit`.

    Raises:
        ValueError: An optimizer has no variables yet.
    """
    optimizers = _optimizers(model)
    unbuilt = [name for name, each in optimizers.items() if not each.built]
    if unbuilt:
        raise ValueError(
            f"`Resume` saves optimizers, and `{unbuilt[0]}` of {type(model).__name__} "
            f"has no variables yet. Call `model.{unbuilt[0]}.build(variables)` with "
            "those that it trains before `fit`."
        )
    sums = model.sums() if isinstance(model, TrainStep) else []
    return {
        "model": model.variables,
        "optimizer": [v for each in optimizers.values() for v in each.variables],
        "metrics": [*model.metrics_variables, *sums],
    }


def described(model: keras.Model) -> dict[str, Any]:
    """Returns the fields of a state that say to what it belongs."""
    optimizers = _optimizers(model).values()
    kinds = {
        "model": type(model).__name__,
        "optimizer": ", ".join(type(_inner(each)).__name__ for each in optimizers),
    }
    variables = {
        name: [[v.path, list(v.shape), str(v.dtype)] for v in group]
        for name, group in groups_of(model).items()
    }
    return {"kinds": kinds, "variables": variables}


def check(state: SavedState, model: keras.Model, folder: Path) -> None:
    """Raises a `ValueError` that says what differs, unless a state is of a model."""
    here = described(model)
    found = [
        f"the {what} is {state.kinds.get(what)} there and {now} here"
        for what, now in here["kinds"].items()
        if state.kinds.get(what) != now
    ]
    for group in ("model", "optimizer", *(["metrics"] if state.batch else [])):
        there, now = state.variables.get(group, []), here["variables"][group]
        pairs = zip(there, now, strict=False)
        # Names are not compared: Keras numbers the layers of a process.
        other = [(a, b) for a, b in pairs if a[1:] != b[1:]]
        if other:
            found.append(f"{_shown(other[0][0])} there is {_shown(other[0][1])} here")
        elif len(there) != len(now):
            counts = f"{len(there)} variables there and {len(now)} here"
            found.append(f"the {group} has {counts}")
    if found:
        raise ValueError(
            f"The state in {folder} belongs to another training: {'; '.join(found)}. "
            "Give `Resume` another folder, or delete this one to begin anew. Nothing "
            "was changed."
        )


def assign(variables: list[keras.Variable], arrays: list[np.ndarray]) -> None:
    """Gives variables the values of a state."""
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def is_finite(state: SavedState) -> bool:
    """Returns whether the weights of a state are numbers, neither Inf nor NaN."""
    return all(np.isfinite(array).all() for array in state.arrays["model"])


def write(folder: Path, state: SavedState, before: Path | None) -> Path:
    """Writes the file of a state, and returns its path.

    Args:
        folder: Folder of the states.
        state: The state.
        before: File of a whole state, which is kept. All others are deleted, first, so
            that the disk never holds more than two.

    Raises:
        OSError: The file cannot be written. `before` still exists.
    """
    for old in _files(folder):
        if old != before:
            old.unlink()
    fields = dataclasses.asdict(dataclasses.replace(state, arrays={}))
    text = json.dumps({"format": FORMAT, **fields})
    content: dict[str, Any] = {"fields": np.frombuffer(text.encode(), "uint8")}
    for group, arrays in state.arrays.items():
        content |= {f"{group}_{i}": _known(array) for i, array in enumerate(arrays)}
    unfinished = folder / UNFINISHED
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **content)
            file.flush()
            os.fsync(file.fileno())  # it is whole also if the machine then fails
        path = folder / f"state_{state.epoch:05d}_{state.batch:08d}.npz"
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)  # it takes room
        raise
    return path


def read_last(folder: Path) -> tuple[SavedState, Path] | None:
    """Returns the last whole state and its file; None if there is none.

    Warns of a damaged file, if there is a whole one before it.

    Raises:
        ValueError: All files are damaged, or of another version.
    """
    files, errors = _files(folder), []
    for path in files[::-1]:
        try:
            state = _read(path)
        except DAMAGED as error:
            errors.append(f"{path} is damaged ({error})")
            continue
        if errors:
            warnings.warn(
                f"{'; '.join(errors)}. The training continues from the state before, "
                f"{state.place}.",
                stacklevel=2,
            )
        return state, path
    if errors:
        raise ValueError(
            f"The state of a training cannot be read: {'; '.join(errors)}. Restore the "
            f"file from a copy, or delete {folder} to begin anew."
        )
    return None


def _read(path: Path) -> SavedState:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        fields = json.loads(archive["fields"].tobytes())
        if fields.pop("format") != FORMAT:
            raise ValueError("another version of kerasvit wrote it")
        state = SavedState(**fields)
        state.arrays = {
            group: [archive[f"{group}_{i}"] for i in range(len(every))]
            for group, every in state.variables.items()
            if group != "metrics" or state.batch
        }
    return state


def _known(array: np.ndarray) -> np.ndarray:
    """Returns an array of a type that NumPy can read: float32 for bfloat16, float8."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _files(folder: Path) -> list[Path]:
    """Returns the files of states, the last one last."""
    matches = {
        path: re.fullmatch(r"state_(\d+)_(\d+)\.npz", path.name)
        for path in folder.glob("state_*.npz")
    }
    numbers = {p: tuple(map(int, m.groups())) for p, m in matches.items() if m}
    return sorted(numbers, key=numbers.__getitem__)


def _optimizers(model: keras.Model) -> dict[str, keras.Optimizer]:
    """Returns {attribute of the model: optimizer}, each optimizer once."""
    found = {
        id(value): (name, value)
        for name, value in vars(model).items()
        if isinstance(value, keras.optimizers.Optimizer)
    }
    return dict(found.values())


def _inner(optimizer: Any) -> keras.Optimizer:
    return getattr(optimizer, "inner_optimizer", optimizer)


def _shown(variable: list) -> str:
    path, shape, dtype = variable
    return f"{path} of shape {tuple(shape)}, {dtype},"
