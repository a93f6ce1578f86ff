"""Access to the two files of a model folder: config.json and the tensors."""

from pathlib import Path
from typing import Any

from .adapter_file import ADAPTERS
from .folder import CONFIG, TENSORS, former_save
from .json_files import read_json
from .opened import stamp
from .reader import REFUSED, CheckpointError, Reader, instead_of

# Number of attempts to open a folder that is saved into at the same time.
SAVES_MEANWHILE = 5
# Files of models without a model.safetensors: {name: what it means}.
INSTEAD_OF_TENSORS = {
    "model.safetensors.index.json": "holds its weights in parts, which are not read. "
    "Save them as one model.safetensors: in transformers "
    'model.save_pretrained(folder, max_shard_size="100GB").',
    ADAPTERS: "holds adapters of LoRA without a model. Load the base weights, then "
    "kerasvit.load_adapters(model, its path or address).",
}


def weights_in(folder: Path) -> Path:
    """Returns the path of the tensor file in a folder.

    Raises:
        CheckpointError: The folder has no tensor file.
    """
    path = folder / TENSORS
    if not path.is_file():
        raise CheckpointError(f"{folder} {_without_tensors(folder)}")
    return path


def _without_tensors(folder: Path) -> str:
    """Returns what a folder without model.safetensors holds, and what to do."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for name, meaning in INSTEAD_OF_TENSORS.items():
        if name in names:
            return meaning
    other = [name for name in names if Path(name).suffix in (".safetensors", ".npz")]
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
        if CONFIG in names
        else ""
    )
    return (
        f"has no {TENSORS}. Give a folder that save_pretrained wrote, or a "
        f".safetensors or .npz file.{stopped}{former_save(folder)}"
    )


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
