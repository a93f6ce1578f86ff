"""Room on the disk for the downloads of a command.

Files that the command downloaded are deleted, oldest first, if the disk has no room for
the next one. Files that were in the caches before are kept. `OUT/downloads.json` lists
the downloads, also those of runs that were killed.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.hub.manifest import Entry
from kerasvit.hub.servers import path_in_cache

if TYPE_CHECKING:
    from huggingface_hub import DeleteCacheStrategy

NAME = "downloads.json"
RESERVE = 200_000_000  # bytes that stay free
MB = 1_000_000


class NoRoom(ValueError):
    """The disk of a cache has no room for a file."""


class Downloads:
    """The files that the command downloaded and did not delete.

    Args:
        out: The command's `--out`.

    Raises:
        CheckpointError: The list in the folder is damaged.
    """

    def __init__(self, out: Path):
        self._path = out / NAME
        content = read_json(self._path)
        # {source: commit of a repository, or None for an address}, oldest first
        self._made = content.get("downloads", {})
        texts = (str, type(None))
        if not isinstance(self._made, dict) or not all(
            isinstance(commit, texts) for commit in self._made.values()
        ):
            raise CheckpointError(f"{self._path} is damaged: remove it.")

    def prepare(self, entry: Entry, commit: str | None, size: int | None) -> None:
        """Makes room for a file, and lists it; does nothing for a cached file.

        A revision of which the user has other files is not listed, nor is a repository
        without a commit.

        Args:
            entry: Entry of the file.
            commit: Commit of the repository; None for an address, or if not known.
            size: Bytes, or None if the server does not state them.

        Raises:
            NoRoom: There is not enough room, and deleting all downloads of the command
                would not make enough. Nothing is deleted then.
        """
        if is_cached(entry, commit):
            return
        if self._made.get(entry.source) not in (None, commit):
            self.delete(entry.source)  # another revision
        self._make_room(entry, RESERVE + (size or entry.megabytes * MB))
        known = entry.source in self._made
        if known or (_is_new(entry.source, commit) if commit else not entry.on_hub):
            self._made[entry.source] = commit
            self._write()

    def delete(self, source: str) -> None:
        """Deletes a file if the command downloaded it."""
        if source in self._made:
            _delete(source, self._made.pop(source))
            self._write()

    def _make_room(self, entry: Entry, needed: int) -> None:
        folder = cache_of(entry.source)
        free = shutil.disk_usage(folder).free
        if free >= needed:
            return
        sizes = dict(self._on_disk_of(folder))
        if free + sum(sizes.values()) < needed:
            raise NoRoom(
                f"The disk of {folder} has {free / MB:,.0f} MB free, this command's "
                f"downloads there have {sum(sizes.values()) / MB:,.0f} MB, and "
                f"{entry.source} needs {needed / MB:,.0f} MB."
            )
        for source in sizes:
            self.delete(source)
            if shutil.disk_usage(folder).free >= needed:
                return
        raise NoRoom(f"{folder} has no room for {needed / MB:,.0f} MB.")

    def _on_disk_of(self, folder: Path) -> Iterator[tuple[str, int]]:
        """Yields (source, bytes) of the downloads on the disk of a folder."""
        device = os.stat(folder).st_dev
        for source, commit in self._made.items():
            if os.stat(cache_of(source)).st_dev == device:
                yield source, _freed(source, commit)

    def _write(self) -> None:
        if not self._made:
            self._path.unlink(missing_ok=True)
            return
        text = json.dumps({"downloads": self._made}, indent=1)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, f"{text}\n".encode())


def is_cached(entry: Entry, commit: str | None) -> bool:
    """Returns whether the file of an entry is in its cache, complete or damaged."""
    from huggingface_hub import try_to_load_from_cache

    if not entry.on_hub:
        return path_in_cache(entry.source).exists()
    found = try_to_load_from_cache(entry.source, entry.filename, revision=commit)
    return isinstance(found, str)


def cache_of(source: str) -> Path:
    """Returns the folder of the cache for a source, or its nearest existing parent."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).absolute()
    if "://" in source:
        folder = path_in_cache(source).parent
    return next(path for path in (folder, *folder.parents) if path.exists())


def _freed(source: str, commit: str | None) -> int:
    """Returns the number of bytes that the deletion of a download frees."""
    if commit is None:
        folder = path_in_cache(source).parent
        return sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
    strategy = _strategy(source, commit)
    return strategy.expected_freed_size if strategy else 0


def _delete(source: str, commit: str | None) -> None:
    """Deletes a downloaded file from its cache; a missing one is no error."""
    if commit is None:
        shutil.rmtree(path_in_cache(source).parent)
    elif strategy := _strategy(source, commit):
        strategy.execute()


def _is_new(source: str, commit: str) -> bool:
    """Returns whether the Hub's cache has no file of a revision."""
    return _strategy(source, commit) is None


def _strategy(source: str, commit: str) -> "DeleteCacheStrategy | None":
    """Returns how to delete a revision from the Hub's cache; None if it has none."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return None
    commits = {
        revision.commit_hash
        for repository in cache.repos
        if repository.repo_id == source
        for revision in repository.revisions
    }
    return cache.delete_revisions(commit) if commit in commits else None
