"""Access to the two files of a model folder: config.json and the tensors."""

from pathlib import Path
from typing import Any

from .adapter_file import ADAPTERS
from .folder import CONFIG, TENSORS, former_save
from .json_files import read_json
from .opened import stamp
from .reader import REFUSED, CheckpointError, Reader, instead_of
from .shards import INDEX, SHARD, Shards

# Number of attempts to open a folder that is saved into at the same time.
SAVES_MEANWHILE = 5
# Files of models without a model.safetensors: {name: what it means}.
INSTEAD_OF_TENSORS = {
    ADAPTERS: "holds adapters of LoRA without a model. Load the base weights, then "
    "kerasvit.load_adapters(model, its path or address).",
}


def found_weights(folder: Path) -> Path | None:
    """Returns the file of tensors in a folder, or the index of shards; or None."""
    paths = (folder / TENSORS, folder / INDEX)
    return next((path for path in paths if path.is_file()), None)


def weights_in(folder: Path) -> Path:
    """Returns the file of tensors in a folder, or the index of shards.

    Raises:
        CheckpointError: The folder has neither.
    """
    path = found_weights(folder)
    if path is None:
        raise CheckpointError(f"{folder} {_without_tensors(folder)}")
    return path


def _without_tensors(folder: Path) -> str:
    """Returns what a folder without model.safetensors holds, and what to do."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for name, meaning in INSTEAD_OF_TENSORS.items():
        if name in names:
            return meaning
    other = [name for name in names if Path(name).suffix in (".safetensors", ".npz")]
    if shards := [name for name in other if SHARD.fullmatch(name)]:
        return f"holds {shards[0]}, a part of the weights, but no {INDEX}. Copy it too."
    if other:
        return (
            f"has no {TENSORS}, but {', '.join(other[:3])}. Pass the path of the file "
            f"with the weights, or rename it to {TENSORS}."
        )
    for name in names:
        if (suffix := Path(name).suffix) in REFUSED:
            what, instead = REFUSED[suffix], instead_of(Path(name))
            return f"holds {name}, {what}, which is not read. {instead}"
    stopped = (
        " Its config.json may be of a save that was stopped: then save again."
        if "kerasvit" in read_json(folder / CONFIG)
        else ""
    )
    return (
        f"has no {TENSORS}. Give a folder that save_pretrained wrote, or a "
        f".safetensors or .npz file.{stopped}{former_save(folder)}"
    )


def open_pair(path: Path) -> tuple[dict[str, Any], Reader | Shards]:
    """Returns (content of config.json, reader) of a file of tensors or an index.

    If another process saves into the folder at the same time, both files come from one
    save. The exception is a short interval during a save, in which the hash in
    config.json differs from that of the tensors.
    """
    read = Shards if path.name == INDEX else Reader
    if path.suffix != ".safetensors" and read is Reader:
        return {}, Reader(path)
    beside = path.parent / CONFIG
    for _ in range(SAVES_MEANWHILE):
        before = stamp(beside)
        config, reader = read_json(beside), read(path)
        if stamp(beside) == before:
            break
    if not config and (former := former_save(path.parent)):
        raise CheckpointError(f"{path} has no config.json beside it.{former}")
    return config, reader
