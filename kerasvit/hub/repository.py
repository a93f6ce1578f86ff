"""A model folder: config.json, model.safetensors and README.md."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np

from kerasvit.checkpoints import Checkpoint, CheckpointError, format_of

from .download import fetch, fetch_repository, parse_address
from .manifest import Entry, explain_tag, published

FORMAT = 1


def named(weights, model) -> Entry | None:
    """The entry of the manifest that `weights` names, or None."""
    return published(model).get(weights) if isinstance(weights, str) else None


def find_weights(weights, name, **access) -> Checkpoint:
    """What stands behind the argument `weights` of a variant.

    Args:
        weights: `Entry` of the manifest, path of a file or of a folder, or
            "hf://user/repository[@revision]".
        name: Of the variant, for the message.
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
    if not path.exists() and not path.suffix and "/" not in text:
        raise CheckpointError(explain_tag(name, text))
    checkpoint = Checkpoint(path)
    written = checkpoint.record.get("format_version", FORMAT)
    if written > FORMAT:
        raise CheckpointError(
            f"{path} was written by a newer kerasvit (format {written}; this one reads "
            f"up to {FORMAT}). Upgrade: pip install -U kerasvit."
        )
    return checkpoint


def write_folder(model, folder, pretrained_cfg) -> Path:
    """Writes a model as a folder that timm reads too, where it can express the model.

    A README.md that is there already is kept; the other two files are replaced, each
    in one step.

    Args:
        model: `keras.Model` with a `record`.
        folder: Made where it does not exist.
        pretrained_cfg: The model's preprocessing as timm's configuration has it.
    """
    record = model.record
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
        config = {**timm, "pretrained_cfg": pretrained_cfg, **config}
    arrays = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    tensors = key_map.write(arrays)
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`folder` must be a folder. Received: the file {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "model.safetensors", _serialise(tensors))
    _replace(folder / "config.json", json.dumps(config, indent=2).encode())
    if not (folder / "README.md").exists():
        _replace(folder / "README.md", _card(record, origin, folder.name).encode())
    return folder


def _serialise(tensors):
    from safetensors.numpy import save

    # A transposed view would be written in the order of its memory.
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return save(tensors, metadata={"format": "pt"})


def _replace(path, content):
    # Beside the target, so that the last step is a rename on one file system.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _card(record, origin, name):
    kwargs = record["kwargs"]
    height, width = kwargs["image_size"]
    normalised = " for images normalised outside" if kwargs["normalization"] else ""
    timm = (
        f"timm reads this folder too, with the same logits{normalised}."
        if origin == "timm"
        else "The tensors carry kerasvit's variable paths: timm has no such model."
    )
    return f"""---
library_name: kerasvit
pipeline_tag: image-classification
tags: [keras, {"timm" if origin == "timm" else "image-classification"}]
---
# {name}

{record["variant"] or record["builder"]} for {kwargs["num_classes"]} classes, images of
{height} × {width} pixels.

    import kerasvit
    model = kerasvit.from_pretrained("path/of/this/folder")
    kerasvit.classify(model, "photo.jpg")

{timm}
"""
