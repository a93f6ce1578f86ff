"""Access to the two files of a model folder: config.json and the tensors."""

from pathlib import Path
from typing import Any

from .folder import CONFIG, TENSORS, former_save
from .json_files import read_json
from .opened import stamp
from .reader import CheckpointError, Reader

# Number of attempts to open a folder that is saved into at the same time.
SAVES_MEANWHILE = 5


def weights_in(folder: Path) -> Path:
    """Returns the path of the tensor file in a folder.

    Raises:
        CheckpointError: The folder has no tensor file.
    """
    path = folder / TENSORS
    if not path.is_file():
        stopped = (
            " Its config.json may be of a save that was stopped: then save again."
            if (folder / CONFIG).is_file()
            else ""
        )
        raise CheckpointError(
            f"{folder} has no {TENSORS}. Give a folder that save_pretrained wrote, or "
            f"a .safetensors or .npz file.{stopped}{former_save(folder)}"
        )
    return path


def open_pair(path: Path) -> tuple[dict[str, Any], Reader]:
    """Returns (content of config.json, `Reader`) of a tensor file.

    If another process saves into the folder at the same time, both files come from one
    save. The exception is a short interval during a save, in which the hash in
    config.json differs from that of the tensors.
    """
    if path.suffix != ".safetensors":
        return {}, Reader(path)
    beside = path.parent / CONFIG
    for _ in range(SAVES_MEANWHILE):
        before = stamp(beside)
        config, reader = read_json(beside), Reader(path)
        if stamp(beside) == before:
            break
    if not config and (former := former_save(path.parent)):
        raise CheckpointError(f"{path} has no config.json beside it.{former}")
    return config, reader
