"""Replaces the files of a model folder atomically, in a safe order."""

import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

CONFIG, TENSORS = "config.json", "model.safetensors"

_UNFINISHED = ".kerasvit-saving-"  # begins the names of files that are not complete
_FORGOTTEN = 3600  # seconds after which the files of a save that was killed are removed
_FORMER = ".kerasvit-saved"  # where an earlier version kept complete files


def replace_file(path: str | os.PathLike, content: bytes) -> None:
    """Writes one file atomically.

    Args:
        path: In a folder that exists.
        content: bytes.

    Raises:
        OSError: It could not be done; the old file is as it was.
    """
    path = Path(path)
    with new_files(path.parent) as new:
        new.write(path.name, content)
        new.put()


@contextmanager
def new_files(folder: Path) -> Iterator["NewFiles"]:
    """Context of `NewFiles` in an existing folder, which removes unfinished files."""
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
            os.fsync(file.fileno())  # else its name may survive a crash without it

    def write(self, name: str, content: bytes) -> None:
        """Writes a file of bytes."""
        with self.open(name) as file:
            file.write(content)

    def put(self) -> None:
        """Renames the files to their names by `put_files`."""
        put_files(self.waiting, self.folder)
        self.waiting = {}


def put_files(files: Mapping[str, Path], folder: str | os.PathLike) -> None:
    """Renames complete files into a folder, in an order that is safe if interrupted.

    config.json comes first, model.safetensors second, then the rest. A stop between
    the first two leaves the new configuration beside the old tensors, or beside none:
    it holds the hash of its own tensors, so that loading refuses both. The other order
    would not be safe: an old configuration may be absent or hold no hash, and the new
    tensors would load with it.

    Args:
        files: {name: path}, on the file system of the folder.
        folder: That exists.

    Raises:
        OSError: A file could not be renamed; where it was one of the first two, the old
            configuration is restored.
    """
    folder, rest = Path(folder), dict(files)
    if CONFIG in rest:
        before = _content(folder / CONFIG)
        os.replace(rest.pop(CONFIG), folder / CONFIG)
        _sync(folder)  # a crash may else keep the second renaming and lose the first
        if TENSORS in rest:
            try:
                os.replace(rest.pop(TENSORS), folder / TENSORS)
            except OSError:  # and for no interrupt, which may come after the renaming
                _restore(folder / CONFIG, before)
                raise
    for name, path in rest.items():
        os.replace(path, folder / name)
    _sync(folder)


def names_in(folder: Path) -> set[str]:
    """Returns names of a folder's files, without those of a killed save."""
    names = {path.name for path in Path(folder).iterdir()}
    return {name for name in names if not name.startswith(_UNFINISHED)}


def former_save(folder: Path) -> str:
    """Explains unfinished files of an earlier version; "" if there are none."""
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
    """Syncs a folder to the disk where the system can."""
    with suppress(OSError):  # Windows and some network disks cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _forget(folder: Path) -> None:
    """Removes old files of killed saves."""
    for left in Path(folder).glob(f"{_UNFINISHED}*"):
        ours = re.fullmatch(r"[0-9a-f]{32}", left.name.removeprefix(_UNFINISHED))
        if ours and left.is_file() and not left.is_symlink():
            with suppress(OSError):  # another process removed it, or it may not be
                if time.time() - left.stat().st_mtime > _FORGOTTEN:
                    left.unlink()
