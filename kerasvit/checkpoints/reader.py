"""`Reader`: access to the tensors of a file by name."""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from .h5_file import SIGNATURE, open_h5
from .open_file import MAX_HEADER, MAX_TENSORS, CheckpointError, Content, OpenFile
from .open_file import printable as printable
from .other_forms import check_form, check_members
from .tensorflow_file import of_tensorflow
from .torch_file import TorchFile, has_pickle, open_older, open_zip

# Ends of the names of files of `torch.save`, also as in "model.pth.tar".
TORCH = (".pth", ".pt", ".bin", ".ckpt", ".tar", ".pkl")
READ = (".safetensors", ".npz", ".h5", *TORCH)

# Limit for one array in an .npz. NumPy has the same limit but reads the header first.
MAX_NPY_HEADER = 10_000

# Dtypes of weights in a `.safetensors` file; the format also has others. I8 are the
# quantised kernels in folders of kerasvit.
DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I8": np.int8,
}  # fmt: skip


class Reader:
    """The tensors of a `.safetensors`, `.npz` or `.h5` file, or one of `torch.save`.

    The constructor reads names and shapes only. Nothing that a pickle names is imported
    or run. The tensors come from the opened file, even if another file replaces it at
    its path.

    Args:
        path: Path of the file.

    Attributes:
        shapes: {name: shape} in the order of the file.
        metadata: Metadata in the header; {} if there are none.
        states: {name: names of tensors}. In a file of `torch.save`, each dict with
            tensors is a state, named by the keys of the dicts around it; the names of
            its tensors begin with that of the state. Others have one state, "".
        objects: {name of a state: {name: class}} of values in these dicts that are
            neither tensors nor plain values.
        keys: {name of a state: keys that lead to it}.

    Raises:
        CheckpointError: The file is missing, damaged or of an unsupported format.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        read = _opener(self.path, _start_of(self.path))
        self._opened = opened = OpenFile(self.path)
        try:
            content = read(opened)
        except CheckpointError:
            raise
        except Exception as error:
            # The libraries raise many kinds of exceptions for damaged files.
            raise _damaged(opened, error) from error
        self._get, self.shapes = content.get, content.shapes
        self.metadata, self.objects = content.metadata, content.objects
        self.keys = content.keys
        states = content.states
        self.states = {"": list(self.shapes)} if states is None else states

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            array = self._get(name)
        except CheckpointError:
            raise
        except Exception as error:
            self._check_unchanged()
            raise _damaged(self._opened, error, name) from error
        self._check_unchanged()
        if array.dtype == np.dtype("V2"):
            # Files of NumPy and HDF5 have no name for bfloat16 and store it as two raw
            # bytes; vit_jax/checkpoint.py reads them in the same way.
            array = array.view(ml_dtypes.bfloat16)
        if array.dtype == np.int8 and self.path.suffix == ".safetensors":
            return array  # a quantised kernel; `assign` checks that one is expected
        if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
            raise CheckpointError(
                f"{self.path} holds {array.dtype} in {name!r}; weights are floating "
                "point. This is not a file of model weights."
            )
        with np.errstate(over="ignore"):  # the next check reports overflows
            array = array.astype("float32", copy=False)
        if not np.isfinite(array).all():
            raise CheckpointError(
                f"{self.path} holds NaN or infinite values in {name!r}. Its training "
                "diverged, or the file is damaged: take an earlier one, or download it "
                "again."
            )
        return array

    def sha256(self) -> str:
        """Returns the SHA-256 of the file in hex.

        Raises:
            CheckpointError: The file was changed while it was read.
        """
        digest = self._opened.sha256()
        self._check_unchanged()
        return digest

    def _check_unchanged(self) -> None:
        if self._opened.changed():
            raise CheckpointError(
                f"{self.path} was changed while it was read. Load it again."
            )


def _start_of(path: Path) -> bytes:
    """Returns the first bytes of a file that may be read."""
    start = check_form(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {what}. Give a .safetensors, .npz or .pth file.")
    if path.suffix not in READ:
        raise CheckpointError(
            f"{path} must end in {', '.join(READ)}. Received: {path.suffix!r}."
        )
    return start


def _opener(path: Path, start: bytes) -> Callable[[OpenFile], Content]:
    """Returns the function that opens a file, chosen by its first bytes."""
    if start.startswith(b"PK"):
        return _open_archive
    if start.startswith(SIGNATURE):
        return _open_h5
    if start[8:9] == b"{":
        return _open_safetensors
    if start.startswith(b"\x80"):
        return _open_pickles
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        raise CheckpointError(
            f"{path} is a web page, not a file of tensors: the download saved an error "
            "or a login page. Open it in an editor to see which, then download again."
        )
    if text.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{path} is a Git LFS pointer, not the file itself. Run `git lfs pull`."
        )
    if start[257:262] == b"ustar":
        raise CheckpointError(
            f"{path} is a tar archive, which is not read. Unpack it. If it is of one "
            "of the first versions of PyTorch, save it again where you trust it: "
            "torch.save(torch.load(path, weights_only=False), new_path)."
        )
    return _open_archive if path.suffix == ".npz" else _open_safetensors


def _damaged(
    opened: OpenFile, error: Exception, name: str | None = None
) -> CheckpointError:
    where = f" at {name!r}" if name else ""
    return CheckpointError(
        f"{opened.path} ({opened.size:,} bytes) cannot be read{where}: {error}. "
        "It is cut short, damaged or of another kind; download or copy it again."
    )


def _open_archive(opened: OpenFile) -> Content:
    archive = zipfile.ZipFile(opened.file)
    check_members(opened.path, archive.namelist())
    if opened.path.suffix == ".npz" and not has_pickle(archive):
        return _open_npz(opened, archive)
    return _of_torch(opened, open_zip(opened, archive))


def _open_pickles(opened: OpenFile) -> Content:
    return _of_torch(opened, open_older(opened))


def _of_torch(opened: OpenFile, file: TorchFile) -> Content:
    return Content(
        get=lambda name: file.read(opened, name),
        shapes={name: tensor.shape for name, tensor in file.tensors.items()},
        states=file.states,
        objects=file.objects,
        keys=file.keys,
    )


def _open_h5(opened: OpenFile) -> Content:
    content = open_h5(opened)
    check_members(opened.path, content.shapes)
    return of_tensorflow(content)


def _open_npz(opened: OpenFile, archive: zipfile.ZipFile) -> Content:
    path, members = opened.path, archive.infolist()
    _check_count(path, len(members))
    shapes = {}
    for member in members:
        # np.load could also return a member `a` in place of the checked `a.npy`.
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in shapes:
            raise CheckpointError(
                f"{path} has a member {member.filename!r}. Each member must be one "
                "array, NAME.npy, with a unique name. This is not a file of model "
                "weights, or it is malicious."
            )
        shapes[name] = _checked_shape(path, archive, member)

    def get(name: str) -> np.ndarray:
        with archive.open(f"{name}.npy") as array:
            return np.lib.format.read_array(array, allow_pickle=False)

    return Content(get, shapes)


def _checked_shape(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[int, ...]:
    """Returns the shape in the header, checked against the number of bytes."""
    with archive.open(member) as array:
        start = io.BytesIO(array.read(MAX_NPY_HEADER))
    version = np.lib.format.read_magic(start)
    read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, _, dtype = read(start)
    if dtype.hasobject:
        raise CheckpointError(
            f"{path} holds a pickled Python object in {member.filename!r}, which is "
            "not read: loading it could run code. Save it again with plain arrays."
        )
    # NumPy accepts True and negative numbers as sizes.
    if not all(type(side) is int and side >= 0 for side in shape) or dtype.subdtype:
        raise CheckpointError(
            f"{path} states the shape {shape!r:.200} and dtype {dtype} for "
            f"{member.filename!r}. Sizes must be non-negative integers. The file is "
            "damaged or malicious; download it again."
        )
    held = member.file_size - start.tell()
    if held != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(
            f"{path} states the shape {shape} for {member.filename!r}, which holds "
            f"{held} bytes. The file is damaged or malicious; download it again."
        )
    return shape


def _check_count(path: Path, count: int) -> None:
    if count > MAX_TENSORS:
        raise CheckpointError(
            f"{path} holds {count:,} tensors; models have at most {MAX_TENSORS:,}. "
            "This is not a file of model weights."
        )


def _open_safetensors(opened: OpenFile) -> Content:
    from safetensors import safe_open

    path, file = opened.path, opened.file
    length = int.from_bytes(file.read(8), "little")
    if MAX_HEADER < length < opened.size:
        raise CheckpointError(
            f"{path} has a header of {length:,} bytes; files of weights have at most "
            f"{MAX_HEADER:,}. This is not a file of model weights."
        )
    # The library checks the header. The tensors are read from the opened file, because
    # the library opens the path again, where another file may lie by now, and maps it
    # into memory, where a truncated file would crash the process.
    with safe_open(path, framework="np") as checked:
        _check_count(path, len(checked.keys()))
    entries = json.loads(file.read(length))
    metadata = entries.pop("__metadata__", None) or {}
    _check_count(path, len(entries))

    def get(name: str) -> np.ndarray:
        entry = entries[name]
        if entry["dtype"] not in DTYPES:
            raise CheckpointError(
                f"{path} holds {entry['dtype']} in {name!r}; weights are one of "
                f"{', '.join(DTYPES)}. This is not a file of model weights, or one of "
                "quantised weights, which are not read."
            )
        first, last = entry["data_offsets"]
        dtype, size = np.dtype(DTYPES[entry["dtype"]]), last - first
        if not 0 <= size == math.prod(entry["shape"]) * dtype.itemsize <= opened.size:
            raise ValueError(f"{size} bytes cannot be of shape {entry['shape']}")
        array = np.empty(entry["shape"], dtype)
        file.seek(8 + length + first)
        if file.readinto(array.reshape(-1).view(np.uint8).data) != size:
            raise ValueError("the file ends before")
        return array

    shapes = {name: tuple(entry["shape"]) for name, entry in entries.items()}
    return Content(get, shapes, metadata)
