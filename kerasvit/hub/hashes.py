"""Checks of the size and the hash of a file."""

import functools
import hashlib
from pathlib import Path

import numpy as np

# {path: SHA-256 that `wrong_content` compared with the file and found correct}
_RIGHT: dict[Path, str] = {}
POLYNOMIAL = 0x82F63B78  # Castagnoli's polynomial, bits reversed: RFC 3720, 12.1
LANE = 4096  # bytes per lane, and the largest number of lanes computed at once


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


def crc32c(path: Path) -> int:
    """Returns the CRC32C of a file, at about 100 MB per second.

    A CRC is linear over GF(2). The CRC of the file combines those of its lanes, each
    advanced by as many zero bytes as bytes follow the lane.

    Reference: RFC 3720, 12.1 and B.4.
    """
    table, pushed = _table(), _pushed()
    state = 0xFFFFFFFF
    with path.open("rb") as file:
        while piece := file.read(LANE * LANE):
            end = len(piece) - len(piece) % LANE
            lanes = np.frombuffer(piece, "uint8", end).reshape(-1, LANE)
            for lane in _fed(np.zeros(len(lanes), "uint32"), lanes.T.copy()).tolist():
                for digit in pushed:
                    lane ^= digit[state & 0xFF]
                    state >>= 8
                state = lane
            for byte in piece[end:]:
                state = int(table[(state ^ byte) & 0xFF]) ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def _fed(states: np.ndarray, rows: np.ndarray) -> np.ndarray:
    for row in rows:
        states = _table()[(states ^ row) & 0xFF] ^ (states >> 8)
    return states


@functools.cache
def _table() -> np.ndarray:
    """Returns the table of states after one byte."""
    table = np.arange(256, dtype="uint32")
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(POLYNOMIAL)
    return table


@functools.cache
def _pushed() -> list[list[int]]:
    """Returns tables that advance a state over a lane of zeros."""
    shifts = np.array([[0], [8], [16], [24]], "uint32")
    states = np.arange(256, dtype="uint32") << shifts
    return _fed(states, np.zeros(LANE, "uint32")).tolist()
