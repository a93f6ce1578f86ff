"""Second attempt to load a folder that was saved while it was read."""

import os
import time
from collections.abc import Callable

import keras

from kerasvit.checkpoints import CheckpointError, stamp
from kerasvit.hub.download import CONFIG, TENSORS

from .find import GivenWeights, path_of


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
