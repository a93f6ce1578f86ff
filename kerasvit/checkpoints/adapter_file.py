"""The file of LoRA's adapters: tensors by variable path, and their settings.

The name is not PEFT's `adapter_model.safetensors`: that file has PyTorch's names and
layout and needs an `adapter_config.json` beside it, by which PEFT and transformers
recognise it. Here one file has everything.
"""

import hashlib
import io
import json
import os
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from .assign import Grids, Tensors, assign
from .folder import write_tensors
from .key_map import KeyMap
from .reader import CheckpointError, Reader
from .sources import VARIABLE_PATHS

ADAPTERS = "adapters.safetensors"  # name in a model folder; MLX uses it, too
ADAPTERS_FORMAT = 2  # 1 has one rank and one alpha, and trains whole layers
_KEY = "kerasvit_adapters"  # of the metadata
_TYPES: dict[str, Any] = {
    "format_version": int, "rank": int, "alpha": (int, float), "layers": list,
    "trained": list, "builder": str, "kernels": dict,
}  # fmt: skip


def adapter_bytes(
    model: keras.Model, weights: list[keras.Variable], settings: dict[str, Any]
) -> bytes:
    """Returns the content of a file of adapters.

    Args:
        model: Model with adapters.
        weights: Variables to write.
        settings: Those of `kerasvit/adapters.py` without `frozen`, and `builder`, the
            name of the model's builder; perhaps `label_names`.

    Raises:
        ValueError: A weight is not finite.
    """
    arrays = finite_arrays(weights)
    kernels = _fingerprint(model, settings["layers"])
    variables = {variable.path for variable in weights} & set(settings["trained"])
    newer = variables or settings.get("ranks") or settings.get("alphas")
    version = ADAPTERS_FORMAT if newer else 1
    content = {**settings, "format_version": version, "kernels": kernels}
    file = io.BytesIO()
    outlines = {path: (str(array.dtype), array.shape) for path, array in arrays.items()}
    write_tensors(file, outlines, arrays, {_KEY: json.dumps(content)})
    return file.getvalue()


def finite_arrays(weights: list[keras.Variable]) -> dict[str, np.ndarray]:
    """Returns {path: array} of variables.

    Raises:
        ValueError: A weight is not finite.
    """
    arrays = {
        variable.path: keras.ops.convert_to_numpy(keras.ops.copy(variable))
        for variable in weights
    }
    for path, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"{path} has weights that are not finite: the training diverged; use "
                "earlier weights. Nothing was written."
            )
    return arrays


def _fingerprint(model: keras.Model, layers: Collection[str]) -> dict[str, str]:
    """Returns the dtype and the SHA-256 of the kernels below the adapters."""
    digest, dtypes = hashlib.sha256(), set()
    paths = {f"{path}/kernel" for path in layers}
    for variable in sorted(model.weights, key=lambda variable: variable.path):
        if variable.path in paths:
            array = keras.ops.convert_to_numpy(keras.ops.copy(variable))
            digest.update(np.ascontiguousarray(array, "<f4").data)
            dtypes.add(keras.backend.standardize_dtype(variable.dtype))
    return {"dtype": " ".join(sorted(dtypes)), "sha256": digest.hexdigest()}


class Adapters:
    """Adapters in a file, which `load_file` adds to a model.

    Args:
        path: Path of the files, for messages.
        settings: Those of `kerasvit/adapters.py` without `frozen`.
        tensors: Tensors of the file.
        key_map: `KeyMap` from their names to variable paths.

    Attributes:
        path, settings: The arguments.
    """

    def __init__(
        self, path: Path, settings: dict[str, Any], tensors: Tensors, key_map: KeyMap
    ) -> None:
        self.path, self.settings = path, settings
        self._tensors, self._key_map = tensors, key_map

    @property
    def names(self) -> set[str]:
        """Paths of the variables in the file."""
        found = filter(None, map(self._key_map.find, self._tensors.shapes))
        return {path for paths, _ in found for path in paths}

    def assign(
        self,
        model: keras.Model,
        expected: list[keras.Variable],
        *,
        left_out: Collection[str] = (),
        source_grids: Grids | None = None,
        kernel: str | None = None,
    ) -> None:
        """Assigns the tensors to a model with these adapters.

        Args:
            model: Model with adapters.
            expected: Variables that the file must have.
            left_out, source_grids, kernel: As for `assign` of a checkpoint.

        Raises:
            CheckpointError: As for `assign` of a checkpoint.
        """
        for name in self._tensors.shapes:
            self._tensors[name]  # raises if it is damaged, before the first is assigned
        needed = {variable.path for variable in expected} | self.names
        part: Any = SimpleNamespace(
            layers=model.layers,
            weights=[v for v in model.weights if v.path in needed],
        )
        assign(
            part,
            self._tensors,
            self._key_map,
            left_out=left_out,
            source_grids=source_grids,
            kernel=kernel,
        )


class AdapterFile(Adapters):
    """A file that `adapter_bytes` returned.

    Args:
        path: Path of the file.

    Attributes:
        builder: Name of the builder of the model that the adapters belong to.
        label_names: Names of the classes that the head was trained for, or None.

    Raises:
        CheckpointError: The file does not exist, is damaged or of another kind.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._reader = reader = Reader(path)
        self.path = reader.path
        content = self._content()
        self.builder, self._kernels = content["builder"], content["kernels"]
        self.label_names = content.get("label_names")
        names = ("rank", "alpha", "layers", "trained", "ranks", "alphas")
        settings = {name: content[name] for name in names if name in content}
        super().__init__(reader.path, settings, reader, VARIABLE_PATHS.key_map({}))

    def _content(self) -> dict[str, Any]:
        text = self._reader.metadata.get(_KEY)
        if text is None:
            raise CheckpointError(
                f"{self.path} is no file of adapters. Give a file that "
                "kerasvit.save_adapters wrote; weights of a model are loaded with "
                "from_pretrained."
            )
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        content = content if isinstance(content, dict) else {}
        if isinstance(version := content.get("format_version"), int):
            if version > ADAPTERS_FORMAT:
                raise CheckpointError(
                    f"{self.path} was written by a newer kerasvit (format {version}; "
                    f"this one reads up to {ADAPTERS_FORMAT}). Upgrade: pip install -U "
                    "kerasvit."
                )
        wrong = [
            k for k, kind in _TYPES.items() if not isinstance(content.get(k), kind)
        ]
        if not wrong:
            paths = [*content["layers"], *content["trained"]]
            wrong += [] if all(isinstance(path, str) for path in paths) else ["layers"]
            wrong += [] if content["layers"] else ["layers"]
            wrong += [] if _are_names(content.get("label_names")) else ["label_names"]
            wrong += [] if _are_sizes(content, "rank", int) else ["rank"]
            wrong += [] if _are_sizes(content, "alpha", (int, float)) else ["alpha"]
        if wrong:
            raise CheckpointError(
                f"{self.path} is damaged: its metadata have missing or wrong values of "
                f"{', '.join(wrong)}. Save the adapters again."
            )
        return content

    def sha256(self) -> str:
        """Returns the SHA-256 of the file in hex."""
        return self._reader.sha256()

    def check_base(self, model: keras.Model) -> None:
        """Checks that a model has the weights with which the adapters were trained.

        Raises:
            CheckpointError: Its kernels have other values.
        """
        found = _fingerprint(model, self.settings["layers"])
        comparable = found["dtype"] == self._kernels.get("dtype")
        if comparable and found["sha256"] != self._kernels.get("sha256"):
            raise CheckpointError(
                f"{self.path} belongs to other weights of the same model: the kernels "
                "below the adapters have other values. Build the model with the "
                "weights that the training began with."
            )


def _are_names(value: object) -> bool:
    """Returns whether a value is None or a list of names."""
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_sizes(content: dict[str, Any], name: str, kind: Any) -> bool:
    """Returns whether a number and those of layers that have others are positive."""
    others = content.get(f"{name}s", {})
    return isinstance(others, dict) and all(
        isinstance(value, kind) and 0 < value < 2**31
        for value in (content[name], *others.values())
    )
