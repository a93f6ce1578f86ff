"""HDF5 files of arrays, as Keras writes them: `.h5` and `.weights.h5`.

h5py reads the names, shapes and places; the values are read here, from the opened file.
So nothing outside the file is followed (links, external storage), no filter of another
library runs, and no array is larger than the file: libhdf5 would fill one that was
never written with zeros.
"""

import math
from dataclasses import dataclass

import numpy as np

from .open_file import MAX_TENSORS, CheckpointError, Content, OpenFile

SIGNATURE = b"\x89HDF\r\n\x1a\n"  # the first bytes
MAX_DEPTH = 64  # groups around an array


@dataclass(frozen=True)
class _Array:
    """An array in the file; `position` is None if it is not in one piece."""

    shape: tuple[int, ...]
    dtype: np.dtype
    position: int | None


def open_h5(opened: OpenFile) -> Content:
    """Opens an HDF5 file; names have the groups around an array, "vit/head/kernel:0".

    Raises:
        CheckpointError: It holds too many arrays. Reading one raises it if it is
            compressed or in pieces.
        Exception: It is damaged.
    """
    arrays = _arrays(opened)

    def get(name: str) -> np.ndarray:
        one = arrays[name]
        size = math.prod(one.shape) * one.dtype.itemsize
        # HDF5 has no name for bfloat16: Keras stores it as two raw bytes.
        if one.dtype.kind not in "fiub" and one.dtype != np.dtype("V2"):
            raise CheckpointError(
                f"{opened.path} holds {one.dtype} in {name!r}; weights are numbers. "
                "This is not a file of model weights."
            )
        if size and one.position is None:
            raise CheckpointError(
                f"{opened.path} holds {name!r} compressed, in pieces or in another "
                "file, which is not read. Save the weights again as Keras does: "
                "model.save_weights(path)."
            )
        if size > opened.size:
            raise ValueError(f"{size:,} bytes are stated")
        array = np.empty(one.shape, one.dtype)
        opened.file.seek(one.position or 0)
        if opened.file.readinto(array.reshape(-1).view(np.uint8).data) != size:
            raise ValueError("the file ends before")
        return array

    return Content(get, {name: array.shape for name, array in arrays.items()})


def _arrays(opened: OpenFile) -> dict[str, _Array]:
    """Returns {name: array}, in the order of the names."""
    import h5py

    arrays: dict[str, _Array] = {}
    objects = 0

    def add(name: str, found: object) -> str | None:
        nonlocal objects
        objects += 1
        # A layer of Keras is a group with one or two groups around its arrays.
        if objects > 4 * MAX_TENSORS or name.count("/") > MAX_DEPTH:
            return name  # ends the visit
        if isinstance(found, h5py.Dataset) and found.shape is not None:
            place = found.id.get_offset()
            arrays[name] = _Array(found.shape, found.dtype, place)
        return None

    with h5py.File(opened.file, "r") as file:
        last = file.visititems(add)  # each object once, and no links to other files
    if last is not None or len(arrays) > MAX_TENSORS:
        raise CheckpointError(
            f"{opened.path} holds more than {MAX_TENSORS:,} arrays, or groups in more "
            f"than {MAX_DEPTH} others. This is not a file of model weights."
        )
    return arrays
