"""Opens the two files of a model folder: config.json and the tensors."""

from pathlib import Path
from typing import Any

from .folder import CONFIG, TENSORS, former_save
from .json_files import read_json
from .opened import stamp
from .reader import CheckpointError, Reader

# After so many saves into a folder while it is opened, what was read is taken.
SAVES_MEANWHILE = 5


def weights_in(folder: Path) -> Path:
    """Returns the path of a folder's tensors.

    Raises:
        CheckpointError: There are none.
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
    """Returns (content of config.json, `Reader`) of a file of tensors.

    Of a folder that is saved into meanwhile both are of one save, but for a moment in
    the middle of a save; then the hash in config.json is not that of the tensors.
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
