"""A model folder: config.json, model.safetensors and README.md."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import keras
import ml_dtypes
import numpy as np

from kerasvit.checkpoints import (
    Checkpoint,
    CheckpointError,
    format_of,
    replace_files,
)

from .card import write_card
from .download import fetch, fetch_repository, parse_address
from .manifest import Entry, explain_tag, published

FORMAT = 1


def named(weights, model) -> Entry | None:
    """The entry of the manifest that `weights` is or names, or None."""
    if isinstance(weights, Entry):
        return weights
    return published(model).get(weights) if isinstance(weights, str) else None


def find_weights(weights, name, **access) -> Checkpoint:
    """What stands behind the argument `weights` of a variant.

    Args:
        weights: `Entry` of the manifest, path of a file or of a folder, or
            "hf://user/repository[@revision]".
        name: Of the variant, for the message; None: it is not known.
        access: For the Hub, as for `fetch_repository`.

    Raises:
        CheckpointError: There is nothing, or it cannot be read or downloaded.
    """
    if isinstance(weights, Entry):
        return Checkpoint(fetch(weights))
    text = os.fspath(weights) if isinstance(weights, (str, os.PathLike)) else None
    if not text:
        raise CheckpointError(
            "`weights` must be a tag, a path, or None for fresh weights. Received: "
            f"{weights!r}."
        )
    if text.startswith("hf://"):
        path = fetch_repository(*parse_address(text), **access)
    elif "://" in text:
        raise CheckpointError(
            "`weights` may be an address of the Hugging Face Hub alone, "
            f"hf://user/repository. Received: {text!r}. Download the file, and the "
            "config.json beside it if there is one, and give its path."
        )
    else:
        path = Path(text).expanduser()
    if not path.exists():
        _explain_absence(path, text, name)
    checkpoint = Checkpoint(path)
    written = checkpoint.record.get("format_version", FORMAT)
    if written > FORMAT:
        raise CheckpointError(
            f"{path} was written by a newer kerasvit (format {written}; this one reads "
            f"up to {FORMAT}). Upgrade: pip install -U kerasvit."
        )
    return checkpoint


def _explain_absence(path, text, name):
    """Raises where a text that names no file was meant for something else."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.parent.exists():
        raise CheckpointError(
            f'There is no folder or file {text}. Of the Hugging Face Hub it is "hf://'
            f'{text}".'
        )
    if "/" not in text and not path.suffix:
        raise CheckpointError(
            explain_tag(name, text)
            if name
            else f"There is no folder {text!r}. Public weights are taken by the name "
            'of their model, as in kerasvit.ViTB16("sam"): kerasvit.list_weights().'
        )


def write_folder(model, folder, pretrained_cfg, name=None, **facts) -> Path:
    """Writes a model as a folder that timm reads too, where it can express the model.

    A README.md that is there already is kept; the other two files are replaced in one
    step: for our readers they are both old or both new.

    Args:
        model: `keras.Model` with a `record`.
        folder: Made where it does not exist.
        pretrained_cfg: The model's preprocessing as timm's configuration has it.
        name: What the card calls it; None: the folder.
        facts: For the card, as for `write_card`; and `dtype`, of the tensors.
    """
    record = model.record
    dtype = facts.pop("dtype", None)
    source, timm = format_of(record)
    origin, key_map = source.ORIGIN, source.key_map(record["kwargs"])
    names = record["label_names"]
    listed = None if names == "imagenet1k" else names  # timm takes a list alone
    config = {
        "num_classes": record["kwargs"]["num_classes"],
        "label_names": listed,
        "kerasvit": {
            **record,
            "label_names": None if listed else names,
            "format_version": FORMAT,
            "weights_format": origin,
            "kerasvit_version": version("kerasvit"),
            "keras_version": version("keras"),
        },
    }
    if timm is not None:
        said = {**timm["pretrained_cfg"], **pretrained_cfg}
        config = {**timm, "pretrained_cfg": said, **config}
    arrays = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    tensors = key_map.write(arrays)
    if dtype is not None:
        # NumPy knows bfloat16 by the package ml_dtypes.
        tensors = {key: value.astype(dtype_of(dtype)) for key, value in tensors.items()}
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`folder` must be a folder. Received: the file {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "model.safetensors": _serialise(tensors),
        "config.json": json.dumps(config, indent=2).encode(),
    }
    if not (folder / "README.md").exists():
        card = write_card(record, origin, name or str(folder), facts)
        contents["README.md"] = card.encode()
    replace_files(folder, contents)
    return folder


def dtype_of(name):
    """The NumPy type that tensors may be stored in.

    Raises:
        ValueError: It is none.
    """
    known = {
        "float32": np.float32,
        "float16": np.float16,
        "bfloat16": ml_dtypes.bfloat16,
    }
    if name not in known:
        raise ValueError(
            f"`dtype` must be one of {', '.join(known)}. Received: {name!r}."
        )
    return known[name]


def _serialise(tensors):
    from safetensors.numpy import save

    # A transposed view would be written in the order of its memory.
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return save(tensors, metadata={"format": "pt"})
