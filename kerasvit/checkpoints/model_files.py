"""Access to the files of a model folder: config.json and the tensors, in shards too."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from .adapter_file import ADAPTERS
from .config import read_json
from .folder import CONFIG, TENSORS, former_save
from .open_file import MAX_TENSORS, CheckpointError, printable, stamp
from .other_forms import form_of_folder
from .peft_folder import PEFT_CONFIG
from .reader import TORCH, Reader

PICKLED = "pytorch_model.bin"  # of timm and transformers, by torch.save
TENSORFLOW = "tf_model.h5"  # of transformers up to version 4
INDEX, PICKLED_INDEX = f"{TENSORS}.index.json", f"{PICKLED}.index.json"
SHARDS = {  # {name of an index: beginning and end of the names of its shards}
    INDEX: ("model", ".safetensors"),
    PICKLED_INDEX: ("pytorch_model", ".bin"),
}
# Of keras-hub: the arrays of a backbone; those of a task, and settings of both.
PRESET, _TASK = "model.weights.h5", "task.weights.h5"
_SETTINGS = ("task.json", "image_converter.json")
BESIDE_PRESET = (_TASK, *_SETTINGS)
MAX_SHARDS = 100  # each is opened twice
# Number of attempts to open a folder that is saved into at the same time.
SAVES_MEANWHILE = 5
# Files of models without a model.safetensors: {name: what it means}.
INSTEAD_OF_TENSORS = dict.fromkeys(
    (ADAPTERS, PEFT_CONFIG),
    "holds adapters of LoRA without a model. Load the base weights, then "
    "kerasvit.load_adapters(model, its path or address).",
) | {
    "model.weights.json": "holds shards of keras-hub, which are not read. Save it "
    "again without: keras_hub.models.Backbone.from_preset(its path)"
    '.save_to_preset("one", max_shard_size=100).',
}


class Shards:
    """The tensors of shards as transformers writes them, with `Reader`'s interface.

    Args:
        path: Path of the index; the shards lie beside it.

    Raises:
        CheckpointError: The index or a shard is missing or damaged, or they disagree.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        files = shard_files(path)
        for name in files:
            if not (path.parent / name).is_file():
                raise CheckpointError(
                    f"{path} lists {name}, which is missing. Copy it to the others."
                )
        self._readers = {name: Reader(path.parent / name) for name in files}
        held = {
            (tensor, file): reader.shapes[tensor]
            for file, reader in self._readers.items()
            for tensor in reader.shapes
        }
        self._places: dict[str, str] = read_json(path)["weight_map"]
        wrong = sorted(held.keys() ^ self._places.items())
        if wrong:
            some = ", ".join(f"{printable(name)} in {file}" for name, file in wrong[:3])
            raise CheckpointError(
                f"{path} and its {len(files)} shards disagree on {len(wrong)} tensors: "
                f"{some}. They come from two saves: use all files of one save."
            )
        self.shapes = {name: shape for (name, _), shape in held.items()}
        self.states = {"": list(self.shapes)}
        self.objects: dict[str, dict[str, str]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[self._places[name]][name]

    def sha256(self) -> str:
        """Returns the SHA-256 of the index in hex."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


class Preset:
    """The arrays in a folder of keras-hub, with `Reader`'s interface.

    Args:
        path: Path of the arrays of the backbone; the names of those of a task in the
            same folder begin with "task/".

    Raises:
        CheckpointError: A file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._readers = {"": Reader(path)}
        if (task := path.with_name(_TASK)).is_file():
            self._readers["task/"] = Reader(task)
        self._places = {
            start + name: (reader, name)
            for start, reader in self._readers.items()
            for name in reader.shapes
        }
        self.shapes = {
            full: reader.shapes[name] for full, (reader, name) in self._places.items()
        }
        self.states = {"": list(self.shapes)}
        self.objects: dict[str, dict[str, str]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        reader, inside = self._places[name]
        return reader[inside]

    def sha256(self) -> str:
        """Returns the SHA-256 of the arrays of the backbone in hex."""
        return self._readers[""].sha256()


def shard_files(path: Path) -> list[str]:
    """Returns the names of the files that an index lists.

    Raises:
        CheckpointError: The index is damaged, or names files of another kind.
    """
    places: Any = read_json(path).get("weight_map")
    listed = isinstance(places, dict) and 0 < len(places) <= MAX_TENSORS
    if not listed or not all(isinstance(file, str) for file in places.values()):
        raise CheckpointError(
            f"{path} must have an object `weight_map`, {{tensor: file}}. Save the "
            "model again."
        )
    files = sorted(set(places.values()))
    matches = [_shard_of(path.name, file) for file in files]
    count, names = str(len(files)).zfill(5), SHARDS[path.name]
    if len(files) > MAX_SHARDS or not all(
        each and each[1] == count for each in matches
    ):
        raise CheckpointError(
            f"{path} must list all shards, {f'-00001-of-{count}'.join(names)} and so "
            f"on. Received: {', '.join(map(printable, files[:5]))}. Use the complete "
            "files, or save the model as one model.safetensors."
        )
    return files


def _shard_of(index: str, file: str) -> re.Match[str] | None:
    """Returns a match of the number of shards if a file is a shard of an index."""
    return re.fullmatch(r"-\d{5}-of-(\d{5})".join(map(re.escape, SHARDS[index])), file)


def found_weights(folder: Path) -> Path | None:
    """Returns the file of tensors in a folder, or the index of shards; or None.

    Files of safetensors come before those of `torch.save` and of TensorFlow.
    """
    names = (TENSORS, INDEX, PICKLED, PICKLED_INDEX, TENSORFLOW, PRESET)
    return next((folder / name for name in names if (folder / name).is_file()), None)


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
    kinds = (".safetensors", ".npz", ".h5")
    other = [name for name in names if Path(name).suffix in kinds]
    other = other or [name for name in names if name.endswith(TORCH)]
    for index in SHARDS:
        if found := [name for name in other if _shard_of(index, name)]:
            return f"holds {found[0]}, a part of the weights, but no {index}. Copy it."
    if other:
        return (
            f"has no {TENSORS}, but {', '.join(other[:3])}. Pass the path of the file "
            "with the weights."
        )
    if known := form_of_folder(folder, names):
        return known
    stopped = (
        " Its config.json may be of a save that was stopped: then save again."
        if "kerasvit" in read_json(folder / CONFIG)
        else ""
    )
    return (
        f"has no {TENSORS}. Give a folder that save_pretrained wrote, or a "
        f".safetensors or .npz file.{stopped}{former_save(folder)}"
    )


def open_pair(path: Path) -> tuple[dict[str, Any], Reader | Shards | Preset]:
    """Returns (content of config.json, reader) of a file of tensors or an index.

    Files of `.npz` have no config.json. For a preset of keras-hub, the content has the
    other files of settings, too: `task` and `image_converter`.

    If another process saves into the folder at the same time, both files come from one
    save. The exception is a short interval during a save, in which the hash in
    config.json differs from that of the tensors.
    """
    read = Shards if path.name in SHARDS else Preset if path.name == PRESET else Reader
    if path.suffix == ".npz":
        return {}, Reader(path)
    beside = path.parent / CONFIG
    for _ in range(SAVES_MEANWHILE):
        before = stamp(beside)
        config, reader = read_json(beside), read(path)
        if stamp(beside) == before:
            break
    if path.name == PRESET and config:
        settings = (path.with_name(name) for name in _SETTINGS)
        config |= {each.stem: read_json(each) for each in settings}
    if not config and (former := former_save(path.parent)):
        raise CheckpointError(f"{path} has no config.json beside it.{former}")
    return config, reader
