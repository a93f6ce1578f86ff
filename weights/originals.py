"""The original files of published weights: location, checks and loading."""

import dataclasses
import os
from pathlib import Path

import keras

import kerasvit
from kerasvit.hub.download import fetch, noted
from kerasvit.hub.hashes import file_hash, wrong_content
from kerasvit.hub.manifest import Entry
from kerasvit.loading.find import open_entry

BESIDE = ("config.json", "preprocessor_config.json")


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """The file that weights came from; `str` gives the sentence of a card.

    Attributes:
        source: Repository of the Hub or address, as its entry has it.
        revision: Commit of the repository, or None where it is not known.
        sha256: SHA-256 of the file.
        pinned: Whether the manifest pins this SHA-256.
        local: Whether it is a local file that replaces the download.
    """

    source: str
    revision: str | None
    sha256: str
    pinned: bool
    local: bool

    def __str__(self) -> str:
        revision = f", revision {self.revision}" if self.revision else ""
        named = f"{self.source}{revision}, SHA-256 `{self.sha256}`"
        if self.pinned:
            return f"{named}, as pinned"
        if not self.local:
            return f"{named}, not pinned"
        return (
            f"a local file in place of {named}, not pinned: nothing says that it is "
            "what was published there"
        )


def first(entry: Entry) -> Entry:
    """Returns the entry as it was before its weights were converted and published."""
    if not entry.made_from:
        return entry
    unknown = dict.fromkeys(("head", "arguments", "revision", "size"))
    return dataclasses.replace(entry, made_from=None, **{**unknown, **entry.made_from})


def original(entry: Entry, path: Path, sha256: str) -> keras.Model:
    """Returns the model of an entry with the weights of its original file.

    Args:
        entry: `Entry` of the original.
        path: Path of the file, from `original_file`.
        sha256: SHA-256 that `original_file` found; it is compared again.

    Raises:
        CheckpointError: The file cannot be read, or has been replaced since.
    """
    checkpoint = open_entry(dataclasses.replace(entry, sha256=sha256), path)
    return getattr(kerasvit, entry.model)(checkpoint, num_classes=classes(entry))


def classes(entry: Entry) -> int | None:
    """0 where the head is left off, None where it is the file's own."""
    return 0 if entry.head == "zeroed" else None


def original_file(
    entry: Entry, source: str | Path | None = None
) -> tuple[Path, SourceFile]:
    """Returns the path of the original file of an entry, checked, and its origin.

    Args:
        entry: `Entry` of the original.
        source: Local file, or a folder that contains it; its config.json is beside it.
            None: the file that `fetch` finds or downloads.

    Raises:
        ValueError: The file does not exist or is not the pinned one; or, for an entry
            without a pinned hash, not the one in FILE.sha256 beside `source`.
    """
    path = Path(os.path.expanduser(source or fetch(entry))).absolute()  # links are kept
    path = path / entry.filename if path.is_dir() else path
    if not path.is_file() or path.suffix != Path(entry.filename).suffix:
        raise ValueError(f"A {entry.filename} is expected. Received: {path}.")
    if wrong := wrong_content(path, entry.size, entry.sha256):
        raise ValueError(f"{path} is not what was pinned of {entry.source}: {wrong}.")
    sha256 = entry.sha256 or file_hash(path)
    if source and not entry.sha256 and noted(path) not in (None, sha256):
        raise ValueError(f"{path} is not what {path.name}.sha256 beside it says.")
    local = bool(source or _is_in(path, os.environ.get("KERASVIT_WEIGHTS_DIR")))
    pinned = entry.sha256 is not None
    revision = _revision(entry, path, local)
    return path, SourceFile(entry.source, revision, sha256, pinned, local)


def link_original(entry: Entry, path: Path, folder: Path) -> Path:
    """Creates a folder with links to the original file and to its configuration.

    timm reads a folder, in which the files have the names of the Hub's repositories.

    Args:
        entry: `Entry` of the original.
        path: Path of the file, from `original_file`.
        folder: Path of the new folder, which is returned.
    """
    folder.mkdir()
    (folder / entry.filename).symlink_to(path)
    for name in BESIDE * entry.on_hub:
        if (beside := path.with_name(name)).exists():
            (folder / name).symlink_to(beside)
    return folder


def _revision(entry: Entry, path: Path, local: bool) -> str | None:
    """Commit of the repository that a file is from, or None."""
    if entry.sha256:
        return entry.revision
    return path.parent.name if entry.on_hub and not local else None


def _is_in(path: Path, folder: str | None) -> bool:
    if not folder:
        return False
    return path.is_relative_to(Path(os.path.expanduser(folder)).absolute())
