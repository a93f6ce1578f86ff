"""Reads and writes the states of a training: each is whole or does not exist.

    states.write(folder, State(step=120), trainer)
    state = states.load_last(folder, trainer, round_steps=100)

A state is a file of weights, which also has the optimizer and the random seeds, and a
JSON file. The JSON file is written first, and the name of the other file last: a state
exists if its file of weights does.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import keras
from command_line import BadInput
from progress import replace_file, write_json

SUFFIX = ".weights.h5"


@dataclasses.dataclass
class State:
    """What is saved of a training beside weights, optimizer and random seeds.

    Attributes:
        step: Number of finished steps.
        history: Metrics of each finished round.
        metrics: Values of the variables of the metrics in an unfinished round; empty at
            the end of a round.
        seconds: Duration of the unfinished round.
    """

    step: int = 0
    history: list[dict] = dataclasses.field(default_factory=list)
    metrics: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0


def write(folder: Path, state: State, trainer: keras.Model) -> None:
    """Saves a state, then deletes the older ones.

    Raises:
        BadInput: The files cannot be written. The last state still exists.
    """
    weights = folder / f"step_{state.step:08d}{SUFFIX}"
    unfinished = folder / f"unfinished{SUFFIX}"
    try:
        trainer.save_weights(unfinished, overwrite=True)
        content = {**dataclasses.asdict(state), "sha256": _digest(unfinished)}
        write_json(_described(weights), content)
        replace_file(unfinished, weights)
        for old in [*folder.glob("round_*"), *folder.glob("step_*")]:
            if old not in (weights, _described(weights)):
                old.unlink()
    except OSError as error:
        raise BadInput(
            f"The state of step {state.step:,} cannot be written to {folder}: {error}. "
            "The last state before it is kept: the same command continues from it."
        ) from error


def load_last(folder: Path, trainer: keras.Model, round_steps: int) -> State:
    """Loads the last state into a trainer and returns it; step 0 if there is none.

    Args:
        folder: Folder of the states.
        trainer: Compiled `kerasvit.SAM`.
        round_steps: Steps per round.

    Raises:
        BadInput: The files are damaged.
    """
    states = sorted(folder.glob(f"round_*{SUFFIX}"))  # of version 0.1: full rounds
    states += sorted(folder.glob(f"step_*{SUFFIX}"))
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
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(
            f"The state of a training, {weights}, is damaged: {error}. Restore the "
            f"files from a copy, or delete {folder} to train again from the first step."
        ) from error
    trainer.optimizer.build(trainer.trainable_variables)
    trainer.load_weights(weights)
    return state


def _described(weights):
    return weights.with_name(weights.name.replace(SUFFIX, ".json"))


def _digest(file):
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
