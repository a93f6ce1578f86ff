"""The files that weights come from: which they are, here or downloaded, and checked."""

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras

import kerasvit
from kerasvit.hub.download import fetch, noted
from kerasvit.hub.hashes import file_hash, wrong_content
from kerasvit.hub.manifest import Entry

BESIDE = ("config.json", "preprocessor_config.json")


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """The file that weights came from; `str` gives the sentence of a card.

    Attributes:
        source: Repository of the Hub or address, as its entry has it.
        revision: Commit of the repository, or None where it is not known.
        sha256: Of the file.
        pinned: Whether the manifest pins this SHA-256.
        local: Whether it was given as a local file in place of the download.
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
    unknown = dict.fromkeys(("head", "revision", "size"))
    return dataclasses.replace(entry, made_from=None, **{**unknown, **entry.made_from})


def original(entry: Entry) -> keras.Model:
    """The model of an entry with the weights of its source, which are checked."""
    return getattr(kerasvit, entry.model)(entry, num_classes=classes(entry))


def classes(entry: Entry) -> int | None:
    """0 where the head is left off, None where it is the file's own."""
    return 0 if entry.head == "zeroed" else None


@contextmanager
def offered(
    entry: Entry, source: str | Path | None = None
) -> Iterator[tuple[Path, SourceFile]]:
    """Lets one file stand for the download of an entry, here and in subprocesses.

    Args:
        entry: Whose file it is.
        source: Local file, with its config.json beside it if it has one, or their
            folder; None: it is downloaded, or where `fetch` finds it.

    Yields:
        (folder with the file, `SourceFile`).

    Raises:
        ValueError: It is not there, or not what was pinned; where nothing was, not what
            FILE.sha256 beside `source` says.
    """
    path = Path(source or fetch(entry)).expanduser().absolute()  # not a link's end
    path = path / entry.filename if path.is_dir() else path
    if not path.is_file() or path.suffix != Path(entry.filename).suffix:
        raise ValueError(f"A {entry.filename} is expected. Received: {path}.")
    if wrong := wrong_content(path, entry.size, entry.sha256):
        raise ValueError(f"{path} is not what was pinned of {entry.source}: {wrong}.")
    sha256 = entry.sha256 or file_hash(path)
    if source and not entry.sha256 and noted(path) not in (None, sha256):
        raise ValueError(f"{path} is not what {path.name}.sha256 beside it says.")
    before = os.environ.get("KERASVIT_WEIGHTS_DIR")
    local = bool(source or _is_in(path, before))
    file = SourceFile(
        entry.source,
        _revision(entry, path, local),
        sha256,
        pinned=entry.sha256 is not None,
        local=local,
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, entry.model, entry.tag)
        folder.mkdir(parents=True)
        (folder / entry.filename).symlink_to(path)
        (folder / f"{entry.filename}.sha256").write_text(sha256)
        for name in BESIDE * entry.on_hub:
            if (beside := path.with_name(name)).exists():
                (folder / name).symlink_to(beside)
        os.environ["KERASVIT_WEIGHTS_DIR"] = place
        try:
            yield folder, file
        except ValueError as error:
            own = str(error).replace(str(folder / entry.filename), str(path))
            raise ValueError(own) from error
        finally:
            del os.environ["KERASVIT_WEIGHTS_DIR"]
            if before is not None:
                os.environ["KERASVIT_WEIGHTS_DIR"] = before


def _revision(entry: Entry, path: Path, local: bool) -> str | None:
    """Commit of the repository that a file is from, or None."""
    if entry.sha256:
        return entry.revision
    return path.parent.name if entry.on_hub and not local else None


def _is_in(path: Path, folder: str | None) -> bool:
    if not folder:
        return False
    return path.is_relative_to(Path(folder).expanduser().absolute())
