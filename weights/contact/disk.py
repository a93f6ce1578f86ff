"""Room on the disk for the downloads of `weights.first_contact`.

Files that the command downloaded are deleted, oldest first, if the disk has no room for
the next one. Files that were in the caches before are kept. `OUT/downloads.json` lists
the downloads, also those of runs that were killed.
"""

import json
import shutil
from pathlib import Path

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.hub.http import path_in_cache
from kerasvit.hub.manifest import Entry

from .failures import ContactError

NAME = "downloads.json"
RESERVE = 200_000_000  # bytes that stay free
MB = 1_000_000


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

        Args:
            entry: Entry of the file.
            commit: Commit of the repository, or None for an address.
            size: Bytes, or None if the server does not state them.

        Raises:
            ContactError: There is not enough room.
        """
        if is_cached(entry, commit):
            return
        folder = cache_of(entry)
        needed = RESERVE + (size or entry.megabytes * MB)
        for source in list(self._made):
            if shutil.disk_usage(folder).free >= needed:
                break
            _delete(source, self._made.pop(source))
            self._write()
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise ContactError(
                "space",
                f"The disk of {folder} has {free / MB:,.0f} MB free, and "
                f"{entry.source} needs {needed / MB:,.0f} MB.",
            )
        self._made[entry.source] = commit
        self._write()

    def _write(self) -> None:
        text = json.dumps({"downloads": self._made}, indent=1)
        replace_file(self._path, f"{text}\n".encode())


def is_cached(entry: Entry, commit: str | None) -> bool:
    """Returns whether the file of an entry is in its cache, complete or damaged."""
    from huggingface_hub import try_to_load_from_cache

    if not entry.on_hub:
        return path_in_cache(entry.source).exists()
    found = try_to_load_from_cache(entry.source, entry.filename, revision=commit)
    return isinstance(found, str)


def cache_of(entry: Entry) -> Path:
    """Returns the folder of the cache for an entry, or its nearest existing parent."""
    from huggingface_hub import constants

    if not entry.on_hub:
        return path_in_cache(entry.source).parent
    folder = Path(constants.HF_HUB_CACHE).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _delete(source: str, commit: str | None) -> None:
    """Deletes a downloaded file from its cache; a missing one is no error."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    if commit is None:
        shutil.rmtree(path_in_cache(source).parent)
        return
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return
    commits = {
        revision.commit_hash
        for repository in cache.repos
        if repository.repo_id == source
        for revision in repository.revisions
    }
    if commit in commits:
        cache.delete_revisions(commit).execute()
