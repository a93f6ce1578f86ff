"""Keeps a folder to one command, and explains a disk that cannot be written.

    with folder_lock.locked(folder):
        ...

The operating system frees the lock of a killed command. On a file system without locks
two commands are not kept apart.
"""

import contextlib
import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from command.command_line import BadInput
from filelock import FileLock, Timeout

LOCK, OWNER = ".lock", ".lock.json"
FILES = {LOCK, OWNER}  # in a folder that a command writes, or that was killed
FULL = {errno.ENOSPC, errno.EDQUOT}
LOST = {errno.EROFS, errno.ESTALE, errno.EIO}
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Creates a folder, and keeps it until the block ends.

    Args:
        folder: Path of the folder.

    Raises:
        ValueError: Another command has it, or it cannot be written.
        BadInput: The block could not write: the disk is full, or the folder is gone.
    """
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
        owner = json.dumps([os.getpid(), socket.gethostname()])
        (folder / OWNER).write_text(owner, "utf-8")
    except Timeout as error:
        raise ValueError(
            f"`out`: {_owner(folder)} is writing {folder}. Wait for its end, or give "
            "another --out."
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            _end(lock, folder)
            raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error
    try:
        with explained_disk(folder):
            yield
    finally:
        _end(lock, folder)


@contextlib.contextmanager
def explained_disk(folder: Path) -> Iterator[None]:
    """Raises a `BadInput` for a full disk, or a folder that is gone or read-only."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            if isinstance(error, ValueError):  # of save_pretrained: it states the sizes
                raise BadInput(f"{error} Then give the same command.") from error
            raise BadInput(
                f"The disk of {folder} is full ({free(folder)}): {error}. What was "
                "written before is whole. Make room, and give the same command."
            ) from error
        if error.errno in LOST or not folder.exists():
            raise BadInput(
                f"{folder} was deleted or can no longer be written: {error}. Give the "
                "same command when it can."
            ) from error
        raise


def free(folder: Path) -> str:
    """Returns how much room the disk of a folder has, such as "12.3 MB are free"."""
    try:
        return f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB are free"
    except OSError:
        return "its free space is unknown"


def _owner(folder):
    """Returns who has the folder."""
    try:
        process, host = json.loads((folder / OWNER).read_text("utf-8"))
    except (OSError, ValueError):  # it has just begun, or ends
        return "another command"
    return f"process {process} on {host}"


def _end(lock, folder):
    """Releases a lock, and deletes its files if this process has it."""
    if lock.is_locked:
        for name in (OWNER, LOCK):
            with contextlib.suppress(OSError):  # Windows deletes no open file
                (folder / name).unlink()
    lock.release()
