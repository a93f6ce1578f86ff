"""Resolution of the argument `weights` to files, opened as a `Checkpoint`."""

import logging
import os
import re
from pathlib import Path
from typing import Any, TypeAlias

from kerasvit.checkpoints import (
    READ,
    REFUSED,
    SHARDS,
    Checkpoint,
    CheckpointError,
    Statement,
    found_weights,
)
from kerasvit.hub.download import TENSORS, fetch, fetch_repository, parse_address
from kerasvit.hub.errors import without_credentials
from kerasvit.hub.hashes import right_hash
from kerasvit.hub.manifest import Entry, call_of, entries, explain_tag, published

from .request import Request, VariantLike, check_count
from .transforms import transform_of

_OF_RUN = "model"  # folder of the model in a folder of the recipes
# Addresses of repositories of the Hub that are no "hf://user/repository".
_PAGE = re.compile(
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf[-_]hub:)"
    r"([\w.-]+/[\w.-]+)"
)

# What the argument `weights` may be, beside None.
GivenWeights: TypeAlias = Entry | Checkpoint | str | os.PathLike[str]
log = logging.getLogger("kerasvit")


def find(
    weights: GivenWeights, label: str | None = None, state: str | None = None
) -> Checkpoint:
    """Opens the checkpoint that the argument `weights` identifies.

    Args:
        weights: `Entry` of the catalogue; path of a file or folder;
            "hf://user/repository[@revision]"; or a `Checkpoint`, which is returned.
        label: Name of the variant for messages, or None.
        state: Which of several models in a file, as for `Checkpoint`; or None.

    Returns:
        `Checkpoint`; its description includes the base model.

    Raises:
        CheckpointError: The weights do not exist or cannot be read or downloaded; or
            `state` is given for something else than files of the caller.
    """
    if state is not None and isinstance(weights, (Checkpoint, Entry)):
        raise CheckpointError(
            "`state` chooses one of several models in a file; these weights are one "
            f"model: leave it out. Received: {state!r:.200}."
        )
    if isinstance(weights, Checkpoint):
        return weights
    if isinstance(weights, Entry):
        return open_entry(weights, fetch(weights))
    path = _files_of(weights, label)
    match = _in_cache(path)
    return Checkpoint(
        path,
        known_hash=_hash_in_cache(path),
        repository=f"{match[1]}/{match[2]}" if match else None,
        state=state,
    )


def entry_named(name: object) -> Entry | None:
    """Returns the entry of the catalogue with a name such as "ViTB16/sam", or None.

    A file or folder of this name comes first.
    """
    model, _, tag = str(name).partition("/")
    entry = published(model).get(tag) if isinstance(name, str) else None
    return None if entry and path_of(str(name)).exists() else entry


def open_entry(entry: Entry, path: Path) -> Checkpoint:
    """Opens the file of a catalogue entry.

    Args:
        entry: `Entry` that describes the file.
        path: Path of the file, or of a folder with `model.safetensors`.

    Raises:
        CheckpointError: The file cannot be read.
    """
    file = path / TENSORS if path.is_dir() else path
    transform = transform_of(entry).to_config()
    return Checkpoint(
        path,
        known_hash=entry.sha256 or right_hash(file),
        preprocessing=Statement("kerasvit", transform, sized=True),
        base={"source": entry.source, "license": entry.license},
        arguments=entry.arguments or {},
        # The catalogue states the variant, so that nothing is assumed.
        open_arguments=(),
        assumptions=(),
    )


def _files_of(weights: str | os.PathLike[str], label: str | None) -> Path:
    """Returns the path of a file or folder, downloaded if necessary."""
    text = os.fspath(weights) if isinstance(weights, (str, os.PathLike)) else None
    if not text:
        raise CheckpointError(
            "`weights` must be a tag, a path, or None for fresh weights. Received: "
            f"{weights!r}."
        )
    page = _PAGE.match(text)
    if text.startswith("hf://"):
        path = fetch_repository(*parse_address(text))
    elif page and not path_of(text).exists():
        raise CheckpointError(
            "`weights` must be a path or an address such as hf://user/repository. "
            f'Received: {page[0]!r}. Write "hf://{page[1]}".'
        )
    elif "://" in text:
        shown = without_credentials(text)
        raise CheckpointError(
            "`weights` must be a path or an address of the Hugging Face Hub, "
            f"hf://user/repository. Received: {shown!r}. Download the file, and its "
            "config.json if there is one, and pass the path."
        )
    else:
        path = path_of(text)
    if path.is_file():
        return path
    if found := found_weights(path) or found_weights(path / _OF_RUN):
        return found
    _check_text(path, text, label)
    return path


def path_of(text: str) -> Path:
    """Returns the path in a text; the path may not exist."""
    try:
        path = Path(os.path.expanduser(text))
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{text!r:.500} cannot be opened: {error}.") from error
    return path


def _check_text(path: Path, text: str, label: str | None) -> None:
    """Raises a `CheckpointError` for a text that may be a repository or a tag.

    `Checkpoint` raises the error for other paths without tensors.
    """
    model, _, tag = text.partition("/")
    if tag and published(model):
        raise CheckpointError(explain_tag(model, tag))
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.parent.exists():
        if name := _spelled(text):
            raise CheckpointError(
                f"There are no weights {text!r}. Did you mean {name!r}?"
            )
        raise CheckpointError(
            f"There is no folder or file {text}. For a repository of the Hugging Face "
            f'Hub, write "hf://{text}".'
        )
    if "/" in text or path.suffix in (*READ, *REFUSED):
        return
    if path.is_dir() and any(path.iterdir()):
        return
    empty = f"The folder {text} has no model.safetensors of save_pretrained. "
    there = empty if path.exists() else ""
    if label:
        raise CheckpointError(there + explain_tag(label, text))
    there = there or (
        f"There is no folder {text!r}: give the path of one that save_pretrained or a "
        "recipe wrote. "
    )
    if tags := published(text):
        raise CheckpointError(
            f"{text} is the name of a model. Name its weights too: "
            + ", ".join(f'"{text}/{tag}"' for tag in tags)
            + "."
        )
    call = call_of(text) or 'kerasvit.ViTB16("sam")'
    raise CheckpointError(
        f"{there}Build public weights with their model, as in {call}; "
        "kerasvit.list_weights() lists them."
    )


def _spelled(name: str) -> str | None:
    """Returns the name in the catalogue that differs in case only, or None."""
    names = (f"{entry.model}/{entry.tag}" for entry in entries())
    return next((each for each in names if each.lower() == name.lower()), None)


def _in_cache(path: Path) -> re.Match[str] | None:
    """Returns a match of (user, name) for a file in the Hub's cache, or None."""
    # models--user--repository/snapshots/commit/model.safetensors
    folders = "/".join(path.absolute().parts[-4:-2])
    return re.fullmatch(r"models--(.+?)--(.+)/snapshots", folders)


def _hash_in_cache(path: Path) -> str | None:
    """Returns the Hub's SHA-256 of a cached file, or None."""
    if not _in_cache(path) or path.name in SHARDS:
        return None  # shards are checked when they are downloaded
    # The target of a link is named by its hash. Without links the file is a copy.
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else right_hash(path)


def catalogue_entry(weights: GivenWeights, variant: VariantLike) -> Entry | None:
    """Returns the catalogue entry for `weights`, an `Entry` or a tag; or None.

    Raises:
        CheckpointError: The entry belongs to another variant.
    """
    entry = weights if isinstance(weights, Entry) else None
    if isinstance(weights, str):
        entry = published(variant.name).get(weights) or entry_named(weights)
    if entry and entry.model != variant.name:
        raise CheckpointError(
            f"The weights {entry.tag!r} belong to {entry.model}, not to "
            f"{variant.label}. Build kerasvit.{entry.model} with them; "
            f"kerasvit.list_weights({variant.label!r}) lists those of {variant.label}."
        )
    return entry


def check_entry(entry: Entry, variant: VariantLike, request: Request) -> None:
    """Raises a `ValueError` before the download if the weights cannot fit."""
    _check_arguments(variant, request.arguments)
    name, classes = f"{entry.model} {entry.tag!r}", entry.classes
    arguments = {"num_classes": classes, **variant.numbers, **request.arguments}
    check_count(request.label_names, arguments["num_classes"])
    if entry.experimental:
        log.warning("%s is experimental: %s.", name, entry.experimental)
    if entry.head == "zeroed" and arguments["num_classes"] == classes:
        raise ZeroedHead(name, classes)


def _check_arguments(variant: VariantLike, explicit: dict[str, Any]) -> None:
    """Checks the caller's arguments, except those whose check depends on the file.

    These are the class token, and windows and the image size if only one is stated.
    """
    later, fitted = {"class_token"}, {"window_size", "image_size"}
    if "window_size" in variant.defaults and not fitted <= explicit.keys():
        later |= fitted
    checked = {key: value for key, value in explicit.items() if key not in later}
    variant.builder.check(**{**variant.defaults, **variant.numbers, **checked})


class ZeroedHead(CheckpointError):
    """Error for weights whose head contains only zeros."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__(
            f"{name} has no classifier: its head of {classes} classes holds only "
            "zeros. Pass `num_classes`: your number for a fresh head, or 0 for "
            "features."
        )
