"""CRC32C, the only checksum of Google's storage for files uploaded in parts."""

import functools
from pathlib import Path

import numpy as np

POLYNOMIAL = 0x82F63B78  # Castagnoli's polynomial, bits reversed: RFC 3720, 12.1
LANE = 4096  # bytes per lane, and the largest number of lanes computed at once


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
