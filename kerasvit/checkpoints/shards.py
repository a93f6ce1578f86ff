"""`Shards`: the tensors of a model in several files, which an index lists."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from .json_files import read_json
from .quoting import printable
from .reader import MAX_TENSORS, CheckpointError, Reader

INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
MAX_SHARDS = 100  # each is opened twice


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
        self.metadata: dict[str, str] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[self._places[name]][name]

    def sha256(self) -> str:
        """Returns the SHA-256 of the index in hex."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


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
    matches = [SHARD.fullmatch(file) for file in files]
    count = str(len(files)).zfill(5)
    if len(files) > MAX_SHARDS or not all(
        each and each[1] == count for each in matches
    ):
        raise CheckpointError(
            f"{path} must list all shards, model-00001-of-{count}.safetensors and so "
            f"on. Received: {', '.join(map(printable, files[:5]))}. Use the complete "
            "files, or save the model as one model.safetensors."
        )
    return files
