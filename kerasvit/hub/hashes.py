"""Checks of the size and the hash of a file."""

import hashlib
from pathlib import Path

# {path: SHA-256 that `wrong_content` compared with the file and found correct}
_RIGHT: dict[Path, str] = {}


def file_hash(path: Path, kind: str = "sha256") -> str:
    """Returns the hash of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def wrong_content(
    path: Path, size: int | None = None, digest: str | None = None
) -> str | None:
    """Returns what is wrong with a file; None if it is as expected.

    Args:
        path: Path of the file.
        size: Expected size in bytes, or None.
        digest: Expected SHA-256 in hex, or the 40 hex digits of git's hash of a small
            file, or None.
    """
    _RIGHT.pop(path, None)
    size_found = path.stat().st_size
    if size is not None and size_found != size:
        return f"it has {size_found} bytes in place of {size}"
    if digest is None:
        return None
    if len(digest) == 40:
        content = path.read_bytes()
        actual = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    else:
        actual = file_hash(path)
    if actual != digest:
        return f"its hash is {actual} in place of {digest}"
    if len(digest) == 64:
        _RIGHT[path] = digest
    return None


def right_hash(path: Path) -> str | None:
    """Returns the SHA-256 that `wrong_content` last found correct for a file.

    The file may have changed since, so the caller must compare the hash again.
    """
    return _RIGHT.get(path)
