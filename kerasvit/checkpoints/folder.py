"""Writer of a model folder: tensors one at a time, files replaced in a safe order."""

import hashlib
import json
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import ml_dtypes  # noqa: F401  (NumPy learns the name bfloat16 from it)
import numpy as np

CONFIG, TENSORS = "config.json", "model.safetensors"

_UNFINISHED = ".kerasvit-saving-"  # prefix of the names of unfinished files
_FORGOTTEN = 3600  # age in seconds at which unfinished files are removed
_FORMER = ".kerasvit-saved"  # subfolder in which an earlier version kept complete files
# {NumPy's name: safetensors' name}. As in files of the library, tensors of the last
# dtypes are written first, so that all tensors are aligned.
TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16",
    "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32",
    "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
# NumPy's name of the dtype, and the shape.
Outline: TypeAlias = tuple[str, tuple[int, ...]]
_RANKS = {dtype: rank for rank, dtype in enumerate(TYPES)}


def replace_file(path: str | os.PathLike, content: bytes) -> None:
    """Writes one file atomically.

    Args:
        path: Path of the file; its folder must exist.
        content: Content as bytes.

    Raises:
        OSError: The file could not be written; the old file is unchanged.
    """
    path = Path(path)
    with new_files(path.parent) as new:
        new.write(path.name, content)
        new.put()


@contextmanager
def new_files(folder: Path) -> Iterator["NewFiles"]:
    """Yields a `NewFiles` in an existing folder and removes unfinished files."""
    _forget(folder)
    new = NewFiles(folder)
    try:
        yield new
    finally:
        for path in new.waiting.values():
            path.unlink(missing_ok=True)


class NewFiles:
    """Files with temporary names until all of them are complete.

    Attributes:
        waiting: {name: path of the complete file}.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)
        self.waiting: dict[str, Path] = {}

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Opens a binary file for writing."""
        self.waiting[name] = self.folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
        with self.waiting[name].open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a crash may otherwise keep the name only

    def write(self, name: str, content: bytes) -> None:
        """Writes a file."""
        with self.open(name) as file:
            file.write(content)

    def put(self) -> None:
        """Renames the files to their final names with `put_files`."""
        put_files(self.waiting, self.folder)
        self.waiting = {}


def put_files(files: Mapping[str, Path], folder: str | os.PathLike) -> None:
    """Renames complete files into a folder, in an order that is safe to interrupt.

    config.json is renamed first, model.safetensors second, then the other files. An
    interruption between the first two leaves the new configuration beside the old
    tensors, or beside none. The configuration contains the hash of the new tensors, so
    loading raises an error. The opposite order is not safe: the old configuration may
    be missing or contain no hash, and the new tensors would load with it.

    Args:
        files: {name: path}; all paths are on the file system of the folder.
        folder: Path of an existing folder.

    Raises:
        OSError: A file could not be renamed. If it was config.json or
            model.safetensors, the old configuration is restored.
    """
    folder, rest = Path(folder), dict(files)
    if CONFIG in rest:
        before = _content(folder / CONFIG)
        os.replace(rest.pop(CONFIG), folder / CONFIG)
        _sync(folder)  # a crash may otherwise keep only the second renaming
        if TENSORS in rest:
            try:
                os.replace(rest.pop(TENSORS), folder / TENSORS)
            except OSError:  # not for interrupts: they may follow the renaming
                _restore(folder / CONFIG, before)
                raise
    for name, path in rest.items():
        os.replace(path, folder / name)
    _sync(folder)


def names_in(folder: Path) -> set[str]:
    """Returns the names of a folder's files, without unfinished files."""
    names = {path.name for path in Path(folder).iterdir()}
    return {name for name in names if not name.startswith(_UNFINISHED)}


def former_save(folder: Path) -> str:
    """Returns a hint on unfinished files of an earlier version, or ""."""
    path = Path(folder) / _FORMER
    if not (path / CONFIG).is_file():
        return ""
    return (
        f" {path} holds files of a save by an earlier version of kerasvit that was "
        f"stopped: if they are yours, move them into {folder}; else remove {path}."
    )


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _restore(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        replace_file(path, content)


def _sync(folder: Path) -> None:
    """Syncs a folder to the disk if the system supports it."""
    with suppress(OSError):  # not supported by Windows and some network disks
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _forget(folder: Path) -> None:
    """Removes old files of interrupted saves."""
    for left in Path(folder).glob(f"{_UNFINISHED}*"):
        ours = re.fullmatch(r"[0-9a-f]{32}", left.name.removeprefix(_UNFINISHED))
        if ours and left.is_file() and not left.is_symlink():
            with suppress(OSError):  # already removed, or not permitted
                if time.time() - left.stat().st_mtime > _FORGOTTEN:
                    left.unlink()


class Arrays(Protocol):
    """Arrays by name, such as a dict of them."""

    def __getitem__(self, name: str, /) -> np.ndarray: ...


def write_tensors(
    file: BinaryIO,
    outlines: Mapping[str, Outline],
    tensors: Arrays,
    metadata: Mapping[str, str],
) -> str:
    """Writes a file with exactly the bytes that `safetensors.numpy.save` returns.

    The library needs all tensors in memory at once; this function needs one at a time.
    The format is the length of the header in 8 bytes, the header in JSON, and the bytes
    of the tensors.

    Args:
        file: Binary file object.
        outlines: {name: (NumPy's name of the dtype, shape)}.
        tensors: Mapping from the names to arrays; each array is read once.
        metadata: {text: text} for the header.

    Returns:
        SHA-256 of the file in hex.

    Raises:
        ValueError: The format does not support a dtype.
        OSError: The file cannot be written.
    """
    order = sorted(outlines, key=lambda name: (-_rank(name, outlines[name]), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        dtype, shape = outlines[name]
        start, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        header[name] = {
            "dtype": TYPES[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    for part in (len(text).to_bytes(8, "little"), text):
        digest.update(part)
        file.write(part)
    for name in order:
        piece = _bytes(tensors[name])
        digest.update(piece)
        file.write(piece)
        del piece  # free the memory before the next tensor is converted
    return digest.hexdigest()


def _rank(name: str, outline: Outline) -> int:
    if outline[0] not in _RANKS:
        raise ValueError(
            f"{name} is {outline[0]}, which a .safetensors file of kerasvit cannot "
            f"hold. It can hold {', '.join(TYPES)}."
        )
    return _RANKS[outline[0]]


def _bytes(array: np.ndarray) -> memoryview:
    """Returns the bytes of an array in C order, little-endian."""
    array = np.ascontiguousarray(array).reshape(-1)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.view(np.uint8).data
