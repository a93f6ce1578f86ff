"""Writer of model folders: config.json, model.safetensors and README.md."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras
import ml_dtypes  # noqa: F401  (NumPy learns the name bfloat16 from it)
import numpy as np

from kerasvit.arguments import one_of
from kerasvit.checkpoints import (
    ADAPTERS,
    FORMAT,
    VARIABLE_PATHS,
    KeyMap,
    format_of,
    new_files,
    write_tensors,
)
from kerasvit.version import __version__

from .download import CONFIG, TENSORS
from .front_matter import read_page


class ModelTensors:
    """Mapping from names in a file to arrays of a model, converted when read.

    Args:
        weights: Variables of a model, or objects with `path`, `shape` and `dtype` that
            `numpy.asarray` converts.
        key_map: `KeyMap` from the names to the variables' paths.
        dtype: Dtype of all arrays but integers; None for that of the variables.

    Attributes:
        outlines: {name: (NumPy's name of the dtype, shape)}.

    Raises:
        ValueError: The dtype is not supported, or a variable has no name.
    """

    def __init__(self, weights: list[Any], key_map: KeyMap, dtype: str | None = None):
        self._key_map = key_map
        self._dtype = None if dtype is None else dtype_of(dtype)
        self._variables: dict[str, list[Any]] = {}
        for variable in weights:
            name: Any = key_map.name(variable.path)  # None: `write` raises
            self._variables.setdefault(name, []).append(variable)
        self.outlines = {name: self._outline(name) for name in self._variables}

    @property
    def dtypes(self) -> list[str]:
        """Names of the arrays' dtypes, sorted."""
        return sorted({dtype for dtype, _ in self.outlines.values()})

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns the array with a name.

        Raises:
            ValueError: The array contains values that are not finite.
        """
        array = self._written(name, values_of)
        with np.errstate(over="ignore"):  # reported below
            cast = array.astype(self._target(array.dtype), copy=False)
        if wrong := np.size(cast) - np.count_nonzero(np.isfinite(cast)):
            reason = "the model is damaged; use earlier weights"
            if np.isfinite(array).all():
                reason = f"{cast.dtype.name} cannot hold them; save as float32"
            raise ValueError(
                f"{name} has {wrong} of {cast.size} weights that are not finite: "
                f"{reason}. Nothing was written."
            )
        return cast

    def _outline(self, name: str) -> tuple[str, tuple[int, ...]]:
        array = self._written(name, _zeros)
        return str(self._target(array.dtype)), array.shape

    def _target(self, dtype: np.dtype) -> np.dtype:
        """Returns the dtype of an array in the file; quantised kernels keep theirs."""
        return dtype if self._dtype is None or dtype.kind in "iu" else self._dtype

    def _written(self, name: str, values: Callable[[Any], np.ndarray]) -> np.ndarray:
        arrays = {v.path: values(v) for v in self._variables[name]}
        (array,) = self._key_map.write(arrays).values()
        return array


def dtype_of(name: str) -> np.dtype:
    """Returns the NumPy dtype to store tensors in.

    Raises:
        ArgumentError: The dtype is not supported.
    """
    return np.dtype(one_of("dtype", name, ("float32", "float16", "bfloat16")))


def values_of(variable: Any) -> np.ndarray:
    """Returns the values of a variable, or of an object like one, as an array."""
    if not isinstance(variable, keras.Variable):
        return np.asarray(variable)
    if keras.backend.backend() == "jax":
        # JAX caches the host copy of an accelerator's array as long as the array
        # exists. The array is copied first, so that the cache is freed at once.
        # Without jax_enable_x64, a variable of float64 has an array of float32.
        array = keras.ops.convert_to_numpy(keras.ops.copy(variable))
        return array.astype(variable.dtype, copy=False)
    return keras.ops.convert_to_numpy(variable)


def _zeros(variable: Any) -> np.ndarray:
    """Returns a zero-memory array of the variable's shape and dtype."""
    dtype = np.dtype(keras.backend.standardize_dtype(variable.dtype))
    return np.broadcast_to(np.zeros((), dtype), tuple(variable.shape))


FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFullError(OSError, ValueError):
    """A disk has no room for a model; the message states the sizes."""


def write_model(
    folder: Path,
    weights: list[Any],
    record: dict[str, Any],
    pretrained_cfg: dict[str, Any],
    *,
    dtype: str | None = None,
    page: bytes | None = None,
    adapters: bytes | None = None,
    quantization: list[dict[str, Any]] | None = None,
) -> Path:
    """Writes a model folder, in timm's format if timm has the model.

    Tensors are converted and written one at a time. Existing files are replaced only
    when all new files are complete.

    Args:
        folder: `pathlib.Path` of the folder, which is created if necessary.
        weights: Variables of the model, or objects like them: see `ModelTensors`.
        record: Record of the model.
        pretrained_cfg: The model's preprocessing in the format of timm's configuration.
        dtype: Dtype of the tensors; None for that of the variables.
        page: Content of README.md; None to keep the existing file.
        adapters: Content of adapters.safetensors. The format is not timm's then, which
            would load the weights without the adapters. None: loading the folder
            ignores an earlier file.
        quantization: Quantised layers of the model for config.json. The format is not
            timm's then. None or []: there are none.

    Returns:
        The folder.

    Raises:
        ValueError: The dtype is not supported, a weight is not finite in it, or the
            disk is full (`DiskFullError`); nothing is written.
        OSError: A file could not be written.
    """
    own = adapters is not None or quantization
    source, timm = (VARIABLE_PATHS, None) if own else format_of(record)
    tensors = ModelTensors(weights, source.key_map(record["kwargs"]), dtype)
    with _disk(folder, tensors), _made(folder), new_files(folder) as new:
        with new.open(TENSORS) as file:
            sha256 = write_tensors(file, tensors.outlines, tensors, {"format": "pt"})
        config = _configuration(record, source.code_base, tensors.dtypes, sha256)
        if adapters is not None:
            new.write(ADAPTERS, adapters)
            config["kerasvit"] |= {
                "format_version": FORMAT,
                "adapters_sha256": hashlib.sha256(adapters).hexdigest(),
            }
        if quantization:
            config["kerasvit"] |= {
                "format_version": FORMAT,
                "quantization": quantization,
            }
        if timm is not None:
            transform = {**timm["pretrained_cfg"], **pretrained_cfg}
            config = {**timm, "pretrained_cfg": transform, **config}
        new.write(CONFIG, json.dumps(config, indent=2).encode())
        if page is not None:
            new.write("README.md", page)
        new.put()
    return folder


def _configuration(
    record: dict[str, Any], origin: str, dtypes: list[str], sha256: str
) -> dict[str, Any]:
    """Returns the fields of config.json that kerasvit reads."""
    names = record["label_names"]
    listed = None if names == "imagenet1k" else names  # timm accepts only a list
    kind = record.get("problem_type")  # transformers reads it beside timm's fields
    return {
        "num_classes": record["kwargs"]["num_classes"],
        "label_names": listed,
        **({"problem_type": kind} if kind else {}),
        "kerasvit": {
            **record,
            "label_names": None if listed else names,
            "format_version": 1,
            "weights_format": origin,
            "weights_dtype": " ".join(dtypes),
            "weights_sha256": sha256,
            "kerasvit_version": __version__,
            "keras_version": keras.__version__,
        },
    }


@contextmanager
def _disk(folder: Path, tensors: ModelTensors) -> Iterator[None]:
    """Context manager that raises a `DiskFullError` if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        needed = sum(
            math.prod(shape) * np.dtype(dtype).itemsize
            for dtype, shape in tensors.outlines.values()
        )
        there = next(path for path in (folder, *folder.parents) if path.exists())
        explained = DiskFullError(
            f"The disk is full: {folder} needs {needed / 1e6:,.1f} MB, and "
            f"{shutil.disk_usage(there).free / 1e6:,.1f} MB are free. What was there "
            "before is whole. Make room."
        )
        explained.errno = error.errno
        raise explained from error


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Context manager that creates a folder and removes it if the block fails."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process may have written into it
            for path in created:
                path.rmdir()
        raise


def local_folder(folder: Any) -> Path:
    """Returns the path of a folder to save to, which need not exist.

    Raises:
        ValueError: The argument is not a path, or is the path of a file.
    """
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else ""
    if not text or re.match(r"\w\w+:/", text):  # C:/ is a path
        raise ValueError(
            f"`folder` must be the path of a folder. Received: {folder!r}. To upload "
            'to the Hugging Face Hub, call push_to_hub(model, "user/name").'
        )
    path = Path(os.path.expanduser(folder))
    if path.exists() and not path.is_dir():
        raise ValueError(f"`folder` must be a folder. Received: the file {folder}.")
    return path


def page_of(folder: Path) -> bytes | None:
    """Returns the README.md of a folder, or None.

    Raises:
        ValueError: The file is too long.
    """
    try:
        return read_page(folder / "README.md")
    except (FileNotFoundError, IsADirectoryError):
        return None
