"""The file of LoRA's adapters: tensors by variable path, and their settings.

The name is not PEFT's `adapter_model.safetensors`: that file has PyTorch's names and
layout and needs an `adapter_config.json` beside it, by which PEFT and transformers
recognise it. Here one file has everything.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from .assign import Grids, assign
from .folder import write_tensors
from .reader import CheckpointError, Reader
from .sources import VARIABLE_PATHS

ADAPTERS = "adapters.safetensors"  # name in a model folder; MLX uses it, too
ADAPTERS_FORMAT = 1
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
        settings: `rank`, `alpha`, `layers` and `trained` of `kerasvit/adapters.py`, and
            `builder`, the name of the model's builder; perhaps `label_names`.

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
    kernels = _fingerprint(model, settings["layers"])
    content = {**settings, "format_version": ADAPTERS_FORMAT, "kernels": kernels}
    file = io.BytesIO()
    outlines = {path: (str(array.dtype), array.shape) for path, array in arrays.items()}
    write_tensors(file, outlines, arrays, {_KEY: json.dumps(content)})
    return file.getvalue()


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


class AdapterFile:
    """A file that `adapter_bytes` returned.

    Args:
        path: Path of the file.

    Attributes:
        settings: `rank`, `alpha`, `layers` and `trained`.
        builder: Name of the builder of the model that the adapters belong to.
        label_names: Names of the classes that the head was trained for, or None.

    Raises:
        CheckpointError: The file does not exist, is damaged or of another kind.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._reader = Reader(path)
        self.path = self._reader.path
        content = self._content()
        self.builder, self._kernels = content["builder"], content["kernels"]
        self.label_names = content.get("label_names")
        names = ("rank", "alpha", "layers", "trained")
        self.settings = {name: content[name] for name in names}

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
            wrong += [] if content["rank"] > 0 else ["rank"]
            wrong += [] if _are_names(content.get("label_names")) else ["label_names"]
            alpha = content["alpha"]
            wrong += [] if math.isfinite(alpha) and alpha > 0 else ["alpha"]
        if wrong:
            raise CheckpointError(
                f"{self.path} is damaged: its metadata have missing or wrong values of "
                f"{', '.join(wrong)}. Save the adapters again."
            )
        return content

    @property
    def names(self) -> Collection[str]:
        """Paths of the variables in the file."""
        return self._reader.shapes.keys()

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
        needed = {variable.path for variable in expected} | set(self.names)
        part: Any = SimpleNamespace(
            layers=model.layers,
            weights=[v for v in model.weights if v.path in needed],
        )
        assign(
            part,
            self._reader,
            VARIABLE_PATHS.key_map({}),
            left_out=left_out,
            source_grids=source_grids,
            kernel=kernel,
        )


def _are_names(value: object) -> bool:
    """Returns whether a value is None or a list of names."""
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
