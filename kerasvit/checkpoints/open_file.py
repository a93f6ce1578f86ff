"""`OpenFile`: a file that stays the one that was opened; `Content`: what it holds."""

import hashlib
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import numpy as np

# Limits that reject decompression bombs. The largest model of kerasvit has 1,300
# tensors and a header of 150 kB. The safetensors library accepts headers of 100 MB and
# uses a gigabyte of memory to read one.
MAX_TENSORS, MAX_HEADER = 20_000, 4_000_000


def printable(text: object) -> str:
    """Returns the text in one line, with unprintable characters escaped.

    Terminals execute control characters and cannot encode lone surrogates.

    Args:
        text: Text, such as the name of a tensor.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class OpenFile:
    """A file that is opened for hashing and for reading.

    The hash and the content are those of the opened file, even if another process
    renames another file to its path. `changed` detects writes into the opened file.

    Args:
        path: Path of the file.

    Attributes:
        file: Binary file object, for reading at any position.
        size: Size in bytes at the time of opening.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        self.file, self._whole = _open_twice(self.path)
        self._hashing = threading.Lock()  # two threads would share one position
        self._then = os.fstat(self.file.fileno())
        self.size = self._then.st_size
        for file in (self.file, self._whole):
            weakref.finalize(self, file.close)

    def sha256(self) -> str:
        """Returns the SHA-256 in hex.

        Other threads may read `file` or call this method at the same time.
        """
        with self._hashing:
            self._whole.seek(0)
            return hashlib.file_digest(self._whole, "sha256").hexdigest()

    def changed(self) -> bool:
        """Returns whether the file has changed since it was opened."""
        then, now = self._then, os.fstat(self.file.fileno())
        if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
            return True
        # A process can set back the modification time, but not the change time.
        # Replacing the file at its path also sets the change time, but then the number
        # of links differs.
        return now.st_nlink == then.st_nlink and now.st_ctime_ns != then.st_ctime_ns


def _open_twice(path: Path) -> tuple[BufferedReader, BufferedReader]:
    """Opens one file twice, with separate positions."""
    while True:
        one, other = path.open("rb"), path.open("rb")
        if os.path.sameopenfile(one.fileno(), other.fileno()):
            return one, other
        one.close()
        other.close()


def stamp(path: str | os.PathLike) -> tuple[int, ...] | None:
    """Returns a stamp that changes when a file is written or replaced, or None."""
    try:
        status = Path(path).stat()
    except OSError:  # the reader of the file reports the error
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Content:
    """What a file holds.

    Attributes:
        get: Function that reads a tensor by name.
        shapes: {name: shape} of all tensors.
        metadata: Metadata in the header.
        states: {name of a state: names of its tensors}; None: one state without name.
        objects: {name of a state: {name: class}} of values that are not tensors.
        keys: {name of a state: keys of the dicts that lead to it}.
    """

    get: Callable[[str], np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[str]] | None = None
    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)


class CheckpointError(ValueError):
    """Error of a checkpoint that cannot be read or does not fit the model.

    Args:
        message: Text of one or more lines. Unprintable characters other than line
            breaks are escaped.
    """

    def __init__(self, message: object) -> None:
        super().__init__("\n".join(map(printable, str(message).split("\n"))))
