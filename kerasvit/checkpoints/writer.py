"""Writer of `.safetensors` files that converts one tensor at a time."""

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol, TypeAlias

import ml_dtypes  # noqa: F401  (NumPy learns the name bfloat16 from it)
import numpy as np

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
