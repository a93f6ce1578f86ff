"""Writer of model folders: config.json, model.safetensors and README.md."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras

from kerasvit.checkpoints import (
    ADAPTERS,
    FORMAT,
    VARIABLE_PATHS,
    format_of,
    new_files,
    write_tensors,
)
from kerasvit.version import __version__

from .download import CONFIG, TENSORS
from .front_matter import read_page
from .tensors import ModelTensors


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
        ValueError: The dtype is not supported, or a weight is not finite in it; nothing
            is written.
        OSError: A file could not be written.
    """
    own = adapters is not None or quantization
    source, timm = (VARIABLE_PATHS, None) if own else format_of(record)
    tensors = ModelTensors(weights, source.key_map(record["kwargs"]), dtype)
    with _made(folder), new_files(folder) as new:
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
    path = Path(folder).expanduser()
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
