"""A file that is opened once, for hashing and for reading."""

import hashlib
import os
import weakref
from io import BufferedReader
from pathlib import Path


class OpenFile:
    """A file that is opened for hashing and for reading.

    A file that another process renames to its path is not seen: both hash and content
    are of the file that was opened. A write into the opened file itself is noticed.

    Args:
        path: The file.

    Attributes:
        file: Binary file object, for reading at any position.
        size: In bytes, when it was opened.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        self.file, self._whole = _open_twice(self.path)
        self._then = os.fstat(self.file.fileno())
        self.size = self._then.st_size
        for file in (self.file, self._whole):
            weakref.finalize(self, file.close)

    def sha256(self) -> str:
        """Returns the SHA-256 in hex; another thread may read `file` meanwhile."""
        self._whole.seek(0)
        return hashlib.file_digest(self._whole, "sha256").hexdigest()

    def changed(self) -> bool:
        """Whether the file was changed since it was opened."""
        then, now = self._then, os.fstat(self.file.fileno())
        if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
            return True
        # The time of the last write can be set back, that of the last change cannot.
        # Where another file has taken the path, the count of links tells that.
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
    except OSError:  # whoever reads it says why
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
