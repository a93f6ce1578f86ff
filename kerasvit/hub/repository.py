"""Resolves the argument `weights` to files, and checks that they belong together."""

import functools
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from kerasvit.checkpoints import (
    REFUSED,
    Checkpoint,
    CheckpointError,
    former_save,
    stamp,
)

from .download import CONFIG, TENSORS, fetch, fetch_repository, parse_address
from .errors import without_credentials
from .hashes import right_hash
from .manifest import Entry, call_of, explain_tag, published


def named(weights, model) -> Entry | None:
    """Returns the catalogue entry that `weights` is or names, or None."""
    if isinstance(weights, Entry):
        return weights
    return published(model).get(weights) if isinstance(weights, str) else None


def find_weights(weights, name, **access) -> Checkpoint:
    """Returns the `Checkpoint` of the argument `weights`.

    Args:
        weights: `Entry` of the manifest, path of a file or of a folder, or
            "hf://user/repository[@revision]".
        name: Of the variant, for the message; None: it is not known.
        access: For the Hub, as for `fetch_repository`.

    Raises:
        CheckpointError: There is nothing, or it cannot be read or downloaded.
    """
    if isinstance(weights, Entry):
        path = fetch(weights)
        file = path / TENSORS if path.is_dir() else path
        return Checkpoint(path, checked=weights.sha256 or right_hash(file))
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
    tensors = path / TENSORS if path.is_dir() else path
    if not tensors.exists():
        _explain_absence(path, text, name)
    return Checkpoint(path, checked=_hash_in_cache(tensors))


def _path(text):
    """Returns the path of a text, which may not exist."""
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{text!r:.500} cannot be opened: {error}.") from error
    return path


def _explain_absence(path, text, name):
    """Raises an error that suggests what a wrong `weights` was meant to be."""
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
    """Returns the base model of weights: {"source", "license"}.

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
    match = _in_cache(checkpoint.path)
    if not match:
        return None
    timms = checkpoint.config.get("pretrained_cfg")
    license = timms.get("license") if isinstance(timms, dict) else None
    return {
        "source": f"{match[1]}/{match[2]}",
        "license": license if isinstance(license, str) else None,
    }


def _in_cache(path):
    """Matches (user, name) of a file in the Hub's cache, or returns None."""
    # models--user--repository/snapshots/commit/model.safetensors
    place = "/".join(path.absolute().parts[-4:-2])
    return re.fullmatch(r"models--(.+?)--(.+)/snapshots", place)


def _hash_in_cache(path):
    """Returns the Hub's SHA-256 of a cached file, or None."""
    if not _in_cache(path):
        return None
    # The file may be a copy; a link has the hash for its name.
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else right_hash(path)


def _is_base(base):
    return (
        isinstance(base, dict)
        and isinstance(base.get("source"), str)
        and isinstance(base.get("license"), (str, type(None)))
    )


@contextmanager
def held_to(checkpoint):
    """Context that checks the SHA-256 of a checkpoint while it is read.

    The file is hashed, which takes a second for 1 or 2 GB; meanwhile the tensors can
    be loaded from the same open file.

    Raises:
        CheckpointError: The file is not the one that was checked before it was opened,
            or not the one that config.json beside it is of.
    """
    written = (checkpoint.record.get("weights_sha256") or "").lower()
    if not (written or checkpoint.checked):
        yield
        return
    with ThreadPoolExecutor(1) as other:
        hashing = other.submit(checkpoint.sha256)
        try:
            yield
        finally:  # in place of other errors: what is wrong explains them
            _compare(checkpoint, hashing.result(), written)


def _compare(checkpoint, found, written):
    path, folder = checkpoint.path, checkpoint.path.parent
    if checkpoint.checked not in (None, found):
        raise CheckpointError(
            f"{path} is not the file that was checked before: its hash is {found} in "
            f"place of {checkpoint.checked}. It was replaced or damaged: load it again."
        )
    if written not in ("", found):
        raise CheckpointError(
            f"{path} is not what config.json beside it is of: its hash is {found} in "
            f"place of {written}. A save was stopped between the two files, or they "
            "are of two saves: save the model again, or take both files from one save. "
            "Only if you changed the tensors yourself, remove `weights_sha256` from "
            f"config.json.{former_save(folder)}"
        )


def again_if_saved(weights, load):
    """Calls `load()`, again if it fails and the folder was saved meanwhile.

    A save replaces two files, one after the other; a load in between sees both saves.

    Args:
        weights: Path of a file or of a folder; what else it is, is loaded once.
        load: Function without arguments.
    """
    before = _stamps(weights)
    try:
        return load()
    except CheckpointError:
        if _stamps(weights) == before:
            raise
    time.sleep(0.1)  # the save renames one more file
    return load()


def beside_savers(load):
    """Decorator that applies `again_if_saved` to a method of `weights`."""

    @functools.wraps(load)
    def patient(self, *given, **options):
        weights = given[0] if given else options.get("weights")
        return again_if_saved(weights, lambda: load(self, *given, **options))

    return patient


def _stamps(weights):
    if not isinstance(weights, (str, os.PathLike)) or "://" in os.fspath(weights):
        return None
    path = _path(os.fspath(weights))
    folder = path if path.is_dir() else path.parent
    return [stamp(file) for file in (path, folder / TENSORS, folder / CONFIG)]
