"""A model folder: config.json, model.safetensors and README.md."""

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import keras
import ml_dtypes
import numpy as np

from kerasvit.checkpoints import (
    FORMAT,
    REFUSED,
    Checkpoint,
    CheckpointError,
    current,
    format_of,
    read_current,
    replace_files,
)
from kerasvit.version import __version__

from .download import fetch, fetch_repository, parse_address
from .explanations import without_credentials
from .front_matter import read_page
from .hashes import wrong_content
from .manifest import Entry, call_of, explain_tag, published


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
        shown = without_credentials(text)
        raise CheckpointError(
            "`weights` may be an address of the Hugging Face Hub alone, "
            f"hf://user/repository. Received: {shown!r}. Download the file, and the "
            "config.json beside it if there is one, and give its path."
        )
    else:
        path = _path(text)
    tensors = path / "model.safetensors" if path.is_dir() else path
    # In this order: a save may move it into its place meanwhile.
    if not (current(tensors).exists() or tensors.exists()):
        _explain_absence(path, text, name)
    return Checkpoint(path)


def _path(text):
    """The path that a text is, of something or of nothing."""
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{text!r:.500} cannot be opened: {error}.") from error
    return path


def _explain_absence(path, text, name):
    """Raises where a text that names no weights was meant for something else."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.parent.exists():
        raise CheckpointError(
            f'There is no folder or file {text}. Of the Hugging Face Hub it is "hf://'
            f'{text}".'
        )
    if "/" in text or path.suffix in (".npz", ".safetensors", *REFUSED):
        return
    empty = f"The folder {text} has no model.safetensors of save_pretrained. "
    there = empty if path.exists() else ""
    if name:
        raise CheckpointError(there + explain_tag(name, text))
    there = there or f"There is no folder {text!r}. "
    call = call_of(text) or 'kerasvit.ViTB16("sam")'
    raise CheckpointError(
        f"{there}Public weights are taken by the name of their model, as in {call}: "
        "kerasvit.list_weights()."
    )


def base_of(checkpoint) -> dict | None:
    """What a model with the weights of a file began with: {"source", "license"}.

    Of a folder that we saved, what it says; of a repository in the Hub's cache, that,
    and the licence if its configuration has one; of other files nothing is known.

    Raises:
        CheckpointError: The folder's own word is damaged.
    """
    if checkpoint.record:
        base = checkpoint.record.get("base")
        if base is None or _is_base(base):
            return base
        raise CheckpointError(
            f"{checkpoint.path.parent / 'config.json'} is damaged: `base` must have "
            f"`source` and `license`. Received: {base!r:.200}. Save the model again."
        )
    # models--user--repository/snapshots/commit/model.safetensors
    place = "/".join(checkpoint.path.absolute().parts[-4:-2])
    found = re.fullmatch(r"models--(.+?)--(.+)/snapshots", place)
    if not found:
        return None
    said = checkpoint.config.get("pretrained_cfg")
    license = said.get("license") if isinstance(said, dict) else None
    return {
        "source": f"{found[1]}/{found[2]}",
        "license": license if isinstance(license, str) else None,
    }


def _is_base(base):
    return (
        isinstance(base, dict)
        and isinstance(base.get("source"), str)
        and isinstance(base.get("license"), (str, type(None)))
    )


@contextmanager
def held_to(checkpoint):
    """Raises in the end where the tensors are not those of the folder's config.json.

    Meanwhile they can be loaded: hashing takes a second for 1 or 2 GB. A link is of the
    Hub's cache, which was checked.

    Raises:
        CheckpointError: They are not.
    """
    file, said = checkpoint.file, checkpoint.record.get("weights_sha256")
    said = None if file.is_symlink() else said
    with ThreadPoolExecutor(1) as other:
        found = other.submit(wrong_content, file, digest=said)
        try:
            yield
        finally:
            try:
                wrong = found.result()
            except OSError as error:  # a save may have moved it
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                raise CheckpointError(
                    f"{file} is not what config.json beside it is of: {wrong}. If it "
                    "was being saved, load again; else take both from one save, or "
                    "remove `weights_sha256` if you changed the weights."
                )


def serialise(model, record, pretrained_cfg, dtype=None) -> dict[str, bytes]:
    """The files that hold a model, such that timm reads them too, where it can.

    Args:
        model: `keras.Model`.
        record: Of the model.
        pretrained_cfg: The model's preprocessing as timm's configuration has it.
        dtype: Of the tensors; None: that of the variables.

    Returns:
        {name: content} of config.json and model.safetensors.

    Raises:
        ValueError: There is no such dtype, or a weight is not a finite number in it.
    """
    from safetensors.numpy import save

    dtype = dtype_of(dtype) if dtype is not None else None
    source, timm = format_of(record)
    origin, key_map = source.ORIGIN, source.key_map(record["kwargs"])
    names = record["label_names"]
    listed = None if names == "imagenet1k" else names  # timm takes a list alone
    arrays = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    tensors = _stored(key_map.write(arrays), dtype)
    content = save(tensors, metadata={"format": "pt"})
    config = {
        "num_classes": record["kwargs"]["num_classes"],
        "label_names": listed,
        "kerasvit": {
            **record,
            "label_names": None if listed else names,
            "format_version": FORMAT,
            "weights_format": origin,
            "weights_dtype": " ".join(sorted({str(t.dtype) for t in tensors.values()})),
            "weights_sha256": hashlib.sha256(content).hexdigest(),
            "kerasvit_version": __version__,
            "keras_version": keras.__version__,
        },
    }
    if timm is not None:
        said = {**timm["pretrained_cfg"], **pretrained_cfg}
        config = {**timm, "pretrained_cfg": said, **config}
    return {
        "model.safetensors": content,
        "config.json": json.dumps(config, indent=2).encode(),
    }


def local_folder(folder) -> Path:
    """A folder, of this machine, that a model is to be saved in; it need not exist.

    Raises:
        ValueError: It is a file, or no path.
    """
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else ""
    if not text or re.match(r"\w\w+:/", text):  # C:/ is one
        raise ValueError(
            f"`folder` must be the path of a folder. Received: {folder!r}. A model "
            'goes to the Hugging Face Hub by push_to_hub(model, "user/name").'
        )
    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError(f"`folder` must be a folder. Received: the file {folder}.")
    return path


def write_folder(folder, contents) -> Path:
    """Writes files into a folder in one step: for our readers all are old, or all new.

    Args:
        folder: `pathlib.Path`; made where it does not exist.
        contents: {name: bytes}.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replace_files(folder, contents)
    return folder


def page_of(folder) -> bytes | None:
    """The README.md of a folder, or None.

    Raises:
        ValueError: It is too long to be one.
    """
    try:
        return read_current(folder / "README.md", read_page)
    except (FileNotFoundError, IsADirectoryError):
        return None


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


def _stored(tensors, dtype):
    """The tensors as they are written, all of them finite."""
    stored = {}
    for name, array in tensors.items():
        with np.errstate(over="ignore"):  # it is said below
            cast = array if dtype is None else array.astype(dtype)
        if wrong := np.size(cast) - np.count_nonzero(np.isfinite(cast)):
            if np.isfinite(array).all():
                meant = f"{np.dtype(dtype).name} cannot hold them; save as float32"
            else:
                meant = "the model is spoilt; take weights of before"
            raise ValueError(
                f"{name} has {wrong} of {cast.size} weights that are not finite: "
                f"{meant}. Nothing was written."
            )
        # A transposed view would be written in the order of its memory.
        stored[name] = np.ascontiguousarray(cast)
    return stored
