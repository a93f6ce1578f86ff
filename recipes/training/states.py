"""Reads and writes the states of a training: each is whole or does not exist.

    states.write(folder, State(step=120), trainer)
    state = states.load_last(folder, trainer, round_steps=100)

A state is a file of weights, which also has the optimizer and the random seeds, and a
JSON file. If devices divide the model, a folder takes the place of the file: see
`divided.py`. The JSON file is written first, and the name of the weights last: a state
exists if its weights do.
"""

import dataclasses
import hashlib
import io
import json
import shutil
from pathlib import Path

import keras
import numpy as np
from command import startup
from command.command_line import BadInput, checking_input
from devices.devices import ONE, Devices
from training import folder_lock
from training.run_folder import replace_file, write_json

FILE, FOLDER = ".weights.h5", ".orbax"  # suffixes of the weights


@dataclasses.dataclass
class State:
    """What is saved of a training beside weights, optimizer and random seeds.

    Attributes:
        step: Number of finished steps.
        history: Metrics of each finished round.
        metrics: Values of the variables of the metrics in an unfinished round; empty at
            the end of a round.
        seconds: Duration of the unfinished round.
        best: Name and SHA-256 of the file of the best weights; None: they are not kept.
    """

    step: int = 0
    history: list[dict] = dataclasses.field(default_factory=list)
    metrics: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    best: list[str] | None = None


def write(
    folder: Path, state: State, trainer: keras.Model, devices: Devices = ONE
) -> None:
    """Saves a state, then deletes the older ones.

    Args:
        folder: Folder of the states.
        state: The state.
        trainer: Compiled `kerasvit.SAM`.
        devices: Devices of the training. All processes call this.

    Raises:
        BadInput: The files cannot be written. An earlier state still exists.
    """
    # In memory first: h5py ends the process if the disk is full.
    content = None if devices.divides_model else _InMemory()
    if content is not None:
        trainer.save_weights(content, overwrite=True)
    try:
        unfinished = _write_weights(folder, content, trainer, devices)
        if not devices.is_first:
            return
        weights = folder / f"step_{state.step:08d}{''.join(unfinished.suffixes)}"
        content = {**dataclasses.asdict(state), "sha256": _digest(unfinished)}
        write_json(_described(weights), content)
        replace_file(unfinished, weights)
        # Reversed, weights are deleted before their JSON file.
        kept = [weights, _described(weights)] + [folder / n for n in state.best or ()]
        patterns = ("round_*", "step_*", "best_*")
        for old in sorted([x for each in patterns for x in folder.glob(each)])[::-1]:
            if old not in kept:
                _delete(old)
    except OSError as error:
        raise BadInput(
            f"The state of step {state.step:,} cannot be written to {folder}: {error}. "
            f"{_room(folder, content and content.getbuffer().nbytes)}"
        ) from error


def write_best(folder: Path, step: int, weights: list) -> list[str]:
    """Writes the best weights so far; a state that is written later has their name.

    Args:
        folder: Folder of the states.
        step: Their number of steps.
        weights: NumPy arrays.

    Returns:
        `best` of the state.

    Raises:
        BadInput: The file cannot be written. An earlier state still exists.
    """
    file, unfinished = folder / f"best_{step:08d}.npz", folder / "unfinished.npz"
    try:
        with unfinished.open("wb") as stream:
            np.savez(stream, *weights)
        digest = _digest(unfinished)
        replace_file(unfinished, file)
    except OSError as error:
        raise BadInput(
            f"The best weights, of step {step:,}, cannot be written to {folder}: "
            f"{error}. {_room(folder, sum(each.nbytes for each in weights))}"
        ) from error
    return [file.name, digest]


def read_best(folder: Path) -> list:
    """Returns what `write_best` wrote for the last state."""
    (file,) = folder.glob("best_*.npz")
    with np.load(file, allow_pickle=False) as found:
        return [found[f"arr_{i}"] for i in range(len(found.files))]


def _write_weights(folder, content, trainer, devices):
    """Returns the path of the weights before they have their name."""
    if devices.is_first:
        for old in folder.glob(f"unfinished{FOLDER}*"):  # after a kill
            shutil.rmtree(old)
    if devices.divides_model:
        from training import divided

        devices.wait("deleted")
        return divided.save(folder / f"unfinished{FOLDER}", trainer)
    unfinished = folder / f"unfinished{FILE}"
    if devices.is_first:
        unfinished.write_bytes(content.getbuffer())
    return unfinished


class _InMemory(io.BytesIO):
    """File in memory with the suffix that Keras asks for."""

    def __str__(self):
        return f"state{FILE}"


def _room(folder, size):
    """Returns what an error says of the disk, and of the state before.

    Args:
        folder: Folder of the states.
        size: Bytes that were to be written; None: unknown.
    """
    for unfinished in folder.glob("unfinished*"):  # it takes room
        _delete(unfinished)
    need = f"It needs {size / 1e6:,.1f} MB, and " if size else ""
    room = f"{need}{folder_lock.free(folder)}."
    if _saved(folder):
        return f"{room} The same command continues from the state before it."
    return f"{room} There is no earlier state: the same command begins again."


def load_last(folder: Path, trainer: keras.Model, round_steps: int) -> State:
    """Loads the last state into a trainer and returns it; step 0 if there is none.

    Args:
        folder: Folder of the states.
        trainer: Compiled `kerasvit.SAM`.
        round_steps: Steps per round.

    Raises:
        BadInput: The files are damaged, or Orbax, which reads them, is missing.
    """
    states = _saved(folder)
    if not states:
        return State()
    weights = states[-1]
    try:
        content = json.loads(_described(weights).read_text())
        if isinstance(content, list):
            content = {"step": len(content) * round_steps, "history": content}
        digest = content.pop("sha256", None)
        state = State(**content)
        if digest not in (None, _digest(weights)):
            raise ValueError("its SHA-256 is another")
        if state.best and state.best[1] != _digest(folder / state.best[0]):
            raise ValueError(f"the SHA-256 of {state.best[0]} is another")
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(
            f"The state of a training, {weights}, is damaged: {error}. Restore the "
            f"files from a copy, or delete {folder} to train again from the first step."
        ) from error
    trainer.optimizer.build(trainer.trainable_variables)
    if weights.suffix == FOLDER:
        with checking_input():
            startup.check_orbax()
        from training import divided

        divided.load(weights, trainer)
    else:
        trainer.load_weights(weights)
    return state


def _saved(folder):
    """Returns the paths of the weights of all states, the last one last."""
    states = sorted(folder.glob(f"round_*{FILE}"))  # of version 0.1: full rounds
    return states + sorted(
        [*folder.glob(f"step_*{FILE}"), *folder.glob(f"step_*{FOLDER}")]
    )


def _described(weights):
    return weights.with_name(f"{weights.name.split('.')[0]}.json")


def _delete(path):
    if path.is_dir():  # it must not be half a state at any moment
        shutil.rmtree(path.rename(path.with_name(f"unfinished{FOLDER}.deleted")))
    else:
        path.unlink()


def _digest(path):
    """Returns the SHA-256 of a file, or of names and digests of a folder's files."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        names = [file.relative_to(path).as_posix() for file in files]
        content = json.dumps([*zip(names, map(_digest, files), strict=True)])
        return hashlib.sha256(content.encode()).hexdigest()
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
