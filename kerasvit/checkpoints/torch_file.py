"""The files of `torch.save`, read without PyTorch; nothing in them is run.

Both forms consist of pickles that name the storages of the tensors, and of the bytes of
these storages. The present one is a zip archive, with the pickle in `data.pkl` and one
member for each storage; the older one has five pickles and then all storages.
Reference: torch/serialization.py, `_save` and `_legacy_save`; torch/_utils.py.
"""

import io
import math
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from .open_file import MAX_HEADER, MAX_TENSORS, CheckpointError, OpenFile, printable
from .pickled import MAX_ARGUMENTS, Inert, Named, unpickled

MAX_PICKLE = 16_000_000  # bytes; the pickles hold no values of tensors
MAX_SHARED = 16  # times that a storage may be in tensors
MAX_DICTS, MAX_ITEMS = 10_000, 1_000_000  # in which tensors are looked for

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of the older form
_MAGIC_BYTES, _START = _MAGIC.to_bytes(10, "little"), 32  # which they are among
_HOW_TO_SAVE = (
    "save the weights with torch.save(model.state_dict(), path) or "
    "safetensors.torch.save_file"
)
_DTYPES: dict[str, Any] = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16, "int64": np.int64, "int32": np.int32,
    "int16": np.int16, "int8": np.int8, "uint64": np.uint64, "uint32": np.uint32,
    "uint16": np.uint16, "uint8": np.uint8, "bool": np.bool_,
}  # fmt: skip
_STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "Untyped": "uint8",
}  # fmt: skip
_UNREAD = {  # {storages that are not read: bytes of an element}
    "ComplexFloat": 8, "ComplexDouble": 16, "QInt8": 1, "QUInt8": 1, "QInt32": 4,
    "QUInt4x2": 1, "QUInt2x4": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a pickle names; its bytes are not read.

    Attributes:
        key: Its name in the file.
        kind: Its class.
        dtype: NumPy's dtype; `np.void` of those that are not read.
        start, size: The part that is meant, in elements.
        whole: Number of elements of the storage.
    """

    key: str
    kind: str
    dtype: np.dtype
    start: int
    size: int
    whole: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a storage; offset and strides are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TorchFile:
    """The tensors in a file of `torch.save`.

    Attributes:
        tensors: {path: tensor}; a path consists of the keys of the dicts around it.
        states: {path of a dict with tensors: paths of its tensors}.
        objects: {path of a dict: {path: class}} of other objects in it.
        keys: {path of a dict: keys that lead to it}.
        places: {key of a storage: (position, length) in bytes}.
        little_endian: Order of bytes in the storages.
    """

    tensors: dict[str, Tensor]
    states: dict[str, list[str]]
    objects: dict[str, dict[str, str]]
    keys: dict[str, tuple[str, ...]]
    places: dict[str, tuple[int, int]]
    little_endian: bool

    def read(self, opened: OpenFile, name: str) -> np.ndarray:
        """Returns the values of a tensor.

        Raises:
            ValueError: The file ends before them.
        """
        tensor = self.tensors[name]
        storage, last = tensor.storage, _last(tensor)
        # Only what the tensor spans is read: storages are shared.
        part = np.empty(last, storage.dtype)
        position, _ = self.places[storage.key]
        first = storage.start + tensor.offset
        opened.file.seek(position + first * part.itemsize)
        if opened.file.readinto(part.view(np.uint8).data) != part.nbytes:
            raise ValueError("the file ends before")
        if not self.little_endian:
            part = part.byteswap()
        strides = [stride * part.itemsize for stride in tensor.strides]
        view = np.lib.stride_tricks.as_strided(part, tensor.shape, strides)
        return np.ascontiguousarray(view).reshape(tensor.shape)


def has_pickle(archive: zipfile.ZipFile) -> bool:
    """Returns whether `torch.save` may have written an archive."""
    return bool(_top(archive))


def _top(archive: zipfile.ZipFile) -> str:
    """Returns the folder of all members with a "/", or ""."""
    names = [n for n in archive.namelist() if n.endswith("/data.pkl")]
    tops = [name.removesuffix("data.pkl") for name in names if name.count("/") == 1]
    return tops[0] if len(tops) == 1 else ""


def open_zip(opened: OpenFile, archive: zipfile.ZipFile) -> TorchFile:
    """Opens a file of the present form.

    Raises:
        CheckpointError: It is another archive, or holds no dict of tensors.
        Exception: It is damaged.
    """
    members = _Members(opened, archive)
    if not members.top:
        raise CheckpointError(
            f"{opened.path} is a zip archive without a data.pkl, which is not read. In "
            f"PyTorch, {_HOW_TO_SAVE}."
        )
    pickle = io.BytesIO(members.content("data.pkl", MAX_PICKLE))
    storages: dict[str, Storage] = {}
    root = unpickled(pickle, _CALLS, lambda key: _storage(key, storages))
    places = {key: members.place(f"data/{key}") for key in storages}
    order = members.content("byteorder", 16) if members.has("byteorder") else b"little"
    if order not in (b"little", b"big"):
        raise ValueError(f"its order of bytes is {order!r}")
    return _found(opened, root, storages, places, order == b"little")


class _Members:
    """The members of an archive, read from the opened file.

    `zipfile` would compare their checksums, which PyTorch may leave out:
    `torch.serialization.set_crc32_options`.

    Attributes:
        top: Name of the folder of all members, with a "/"; "" if it has no data.pkl.
    """

    def __init__(self, opened: OpenFile, archive: zipfile.ZipFile) -> None:
        self.top = _top(archive)
        self._opened = opened
        self._members = {member.filename: member for member in archive.infolist()}

    def has(self, name: str) -> bool:
        """Returns whether there is a member."""
        return self.top + name in self._members

    def place(self, name: str) -> tuple[int, int]:
        """Returns (position, length) of the content of a member in bytes.

        Raises:
            ValueError: It is missing, compressed or damaged.
        """
        if not self.has(name):
            raise ValueError(f"its member {name} is missing")
        member, file = self._members[self.top + name], self._opened.file
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its member {name} is compressed")
        file.seek(member.header_offset)
        header = file.read(30)
        if header[:4] != b"PK\x03\x04":
            raise ValueError(f"its member {name} has no header")
        lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        start = member.header_offset + 30 + sum(lengths)
        if start + member.file_size > self._opened.size:
            raise ValueError(f"the file ends within {name}")
        return start, member.file_size

    def content(self, name: str, most: int) -> bytes:
        """Returns the content of a member of at most so many bytes."""
        start, length = self.place(name)
        if length > most:
            raise ValueError(f"its member {name} has {length:,} bytes")
        self._opened.file.seek(start)
        return self._opened.file.read(length)


def open_older(opened: OpenFile) -> TorchFile:
    """Opens a file of the older form.

    Raises:
        CheckpointError: It is another pickle, or holds no dict of tensors.
        Exception: It is damaged.
    """
    file = opened.file
    file.seek(0)
    pickles = io.BytesIO(file.read(min(opened.size, MAX_PICKLE)))
    storages: dict[str, Storage] = {}

    def next_value() -> Any:
        return unpickled(pickles, _CALLS, lambda key: _storage(key, storages))

    start = pickles.read(_START)
    pickles.seek(0)
    other = len(start) == _START and _MAGIC_BYTES not in start
    if other or next_value() != _MAGIC:
        raise CheckpointError(
            f"{opened.path} is a pickle that torch.save did not write; such pickles "
            f"are not read. In PyTorch, {_HOW_TO_SAVE}."
        )
    protocol, system = next_value(), next_value()
    if protocol != _PROTOCOL or not isinstance(system, dict):
        raise ValueError("it is of another version of torch.save")
    root, keys = next_value(), next_value()
    little_endian = system.get("little_endian") is not False
    places, position = {}, pickles.tell()
    for key in keys:
        storage = storages[key]
        file.seek(position)
        count = int.from_bytes(file.read(8), "little" if little_endian else "big")
        if count != storage.whole:
            raise ValueError(f"its storage {key} has another size than its tensors say")
        length = count * storage.dtype.itemsize
        places[key] = position + 8, length
        position += 8 + length
        if position > opened.size:
            raise ValueError(f"the file ends within the storage {key}")
    return _found(opened, root, storages, places, little_endian)


def _storage(identity: Any, storages: dict[str, Storage]) -> Storage:
    """Returns the storage that a persistent id names, and adds it to `storages`."""
    kind, named, key, _, size, *view = identity
    if kind != "storage" or not isinstance(named, Named) or not isinstance(key, str):
        raise ValueError("its pickle names something else than a storage")
    name = named.name.rpartition(".")[2].removesuffix("Storage")
    known = _STORAGES.get(name)
    if not known and name not in _UNREAD:
        raise ValueError(f"its storages are of the class {named.name!r:.200}")
    dtype = np.dtype(_DTYPES[known] if known else (np.void, _UNREAD[name]))
    _check_sizes(size)
    storage = Storage(key, named.name, dtype, 0, size, size)
    if storages.setdefault(key, storage) != storage:
        raise ValueError(f"its storage {key} has two sizes or types")
    if view and view[0] is not None:  # of PyTorch before 0.4
        _, start, part = view[0]
        _check_sizes(start, part, start + part, most=size)
        storage = replace(storage, start=start, size=part)
    return storage


def _check_sizes(*sizes: Any, most: int = 2**62) -> None:
    if not all(type(size) is int and 0 <= size <= most for size in sizes):
        raise ValueError("its tensors have wrong sizes")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *others: Any) -> Any:
    """Returns a tensor whose place in the storage is checked.

    Signature of torch/_utils.py `_rebuild_tensor_v2`, whose last argument may say that
    the values are to be negated.
    """
    if not isinstance(storage, Storage):
        raise ValueError("its tensors have no storage")
    if storage.dtype.type is np.void:
        return Inert(storage.kind)
    if not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise ValueError("its tensors have no shape")
    if len(shape) != len(strides) or len(shape) > 64:
        raise ValueError("its tensors have wrong strides")
    _check_sizes(offset, *shape, *strides)
    tensor = Tensor(storage, offset, shape, strides)
    if offset + _last(tensor) > storage.size:
        raise ValueError("its tensors are larger than their storages")
    if len(others) > 2 and others[2]:
        return Inert("torch.Tensor.neg")
    if math.prod(shape) > storage.size:
        return Inert("torch.Tensor.expand")  # could fill the memory
    return tensor


def _last(tensor: Tensor) -> int:
    """Returns how many elements of the storage the tensor spans."""
    if 0 in tensor.shape:
        return 0
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    return 1 + sum((side - 1) * stride for side, stride in pairs)


def _tensor_of_bytes(storage: Any, *arguments: Any) -> Any:
    """Returns a tensor in a storage of bytes.

    Signature of torch/_utils.py `_rebuild_tensor_v3`: that of `_rebuild_tensor_v2` and
    a dtype, for those that have no class of storages.
    """
    named = arguments[5]
    if not isinstance(named, Named) or storage.dtype != np.uint8:
        raise ValueError("its tensors have no dtype")
    name = named.name.removeprefix("torch.")
    if name not in _DTYPES:
        return Inert(named.name)
    dtype = np.dtype(_DTYPES[name])
    size = storage.size // dtype.itemsize
    return _tensor(replace(storage, dtype=dtype, size=size), *arguments[:3])


def _parameter(data: Any, *_: Any) -> Any:
    """Returns the tensor of a parameter."""
    if not isinstance(data, (Tensor, Inert)):
        raise ValueError("its parameters have no tensors")
    return data


def _of_type(function: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    """Returns a tensor with attributes; those of other classes are not made.

    Signature of torch/_tensor.py `_rebuild_from_type_v2`.
    """
    named = isinstance(function, Named) and isinstance(kind, Named)
    if not named or not isinstance(arguments, tuple) or len(arguments) > MAX_ARGUMENTS:
        raise ValueError("its tensors have no class")
    make = _TENSORS.get(function.name)
    if make is None or kind.name not in _KINDS:
        return Inert(kind.name)
    return make(*arguments)


def _ordered(items: Any = ()) -> dict[str, Any]:
    """Returns the dict in the place of an `OrderedDict`."""
    return {key: value for key, value in items if isinstance(key, str)}


def _first(value: Any = (), *_: Any) -> Any:
    """Returns a value in the place of an object that is made from it."""
    return value


_TENSORS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
_KINDS = {"torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter"}
_CALLS: dict[str, Callable[..., Any]] = {
    **_TENSORS,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": lambda *_: {},
    "torch.Size": _first,
    "torch.device": _first,
    "_codecs.encode": _first,  # bytes
    **dict.fromkeys(
        (
            f"{module}.{name}"
            for module in ("builtins", "__builtin__")
            for name in ("set", "frozenset", "bytearray")
        ),
        _first,
    ),
}


def _found(
    opened: OpenFile,
    root: Any,
    storages: dict[str, Storage],
    places: dict[str, tuple[int, int]],
    little_endian: bool,
) -> TorchFile:
    """Returns the tensors in a value, found through dicts at any depth."""
    for key, storage in storages.items():
        if places[key][1] < storage.whole * storage.dtype.itemsize:
            raise ValueError(f"its storage {key} is shorter than its tensors say")
    file = TorchFile({}, {}, {}, {}, places, little_endian)
    for keys, name, value in _items(opened, root):
        path = ".".join(keys)
        file.keys[path] = keys
        if isinstance(value, Tensor):
            if name in file.tensors:
                raise CheckpointError(
                    f"{opened.path} holds two tensors {name!r}, in different dicts."
                )
            file.tensors[name] = value
            file.states.setdefault(path, []).append(name)
        else:
            file.objects.setdefault(path, {})[name] = value.name
    values = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    if values > MAX_SHARED * opened.size:  # a byte is the smallest element
        raise CheckpointError(
            f"{opened.path} holds {values:,} values of tensors in {opened.size:,} "
            "bytes. This is not a file of model weights."
        )
    if file.tensors:
        return file
    if isinstance(root, (Inert, Named)):
        raise CheckpointError(
            f"{opened.path} holds an object of {root.name!r:.200}, which is not made: "
            "that could run code. kerasvit reads dicts of tensors. In PyTorch, "
            f"{_HOW_TO_SAVE}."
        )
    for path, inside in file.objects.items():
        name, kind = next(iter(inside.items()))
        raise CheckpointError(
            f"{opened.path} holds no tensors; it holds {printable(kind):.200} at "
            f"{printable(name):.200}, which is not made: that could run code. "
            f"{save_again(opened.path, file.keys[path], kind)}"
        )
    raise CheckpointError(
        f"{opened.path} holds no dict of tensors. This is not a file of model weights."
    )


def save_again(path: object, keys: Iterable[str], kind: str) -> str:
    """Returns what to do with a dict that holds an object that is not made.

    Args:
        path: Path of the file.
        keys: Keys that lead to the dict.
        kind: Class of the object.
    """
    if not kind.startswith("numpy."):
        return "Save the model again without it: torch.save(model.state_dict(), path)."
    state = "".join(f"[{key!r}]" for key in keys)
    return (
        "If you trust the file, make tensors of its arrays: import torch; state = "
        f"torch.load({str(path)!r}, weights_only=False){state}; "
        "torch.save({k: torch.as_tensor(v) for k, v in state.items() "
        'if getattr(v, "ndim", 0)}, "weights.pth")'
    )


def _items(opened: OpenFile, root: Any) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yields (keys of a dict, path, value) of all tensors and objects in dicts.

    Raises:
        CheckpointError: There are too many.
    """
    waiting: deque[tuple[tuple[str, ...], Any]] = deque([((), root)])
    dicts, letters, count, seen = 0, 0, 0, 0
    while waiting:
        keys, parent = waiting.popleft()
        path = ".".join(keys)
        dicts += 1
        for key, value in parent.items() if isinstance(parent, dict) else ():
            seen += 1
            if isinstance(value, (dict, Tensor, Inert, Named)):
                count += 1
                letters += len(path) + len(key) + 1
            if (
                letters > MAX_HEADER
                or dicts > MAX_DICTS
                or count > MAX_TENSORS
                or seen > MAX_ITEMS
            ):
                raise CheckpointError(
                    f"{opened.path} holds over {MAX_TENSORS:,} tensors, {MAX_DICTS:,} "
                    f"dicts, {MAX_ITEMS:,} values, or {MAX_HEADER:,} letters of names. "
                    "This is not a file of model weights."
                )
            if not isinstance(value, (dict, Tensor, Inert, Named)):
                continue
            name = f"{path}.{key}" if path else key
            if isinstance(value, dict):
                waiting.append(((*keys, key), value))
            elif not isinstance(value, Named) or not _is_dtype(value):
                yield keys, name, value


def _is_dtype(named: Named) -> bool:
    return named.name.removeprefix("torch.") in _DTYPES
