"""Files of a folder that belong together: for their readers all old, or all new."""

import errno
import os
import shutil
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

_WHOLE = ".kerasvit-saved"  # holds new files, all complete, until each is in its place
_UNFINISHED = ".kerasvit-saving-"  # holds those of a save until all are complete
_FORGOTTEN = 3600  # seconds after which files of a save that was killed are removed


def current(path) -> Path:
    """Where the content of a file of a model folder is: at its path, as a rule.

    Where a save was stopped after all new files stood, and before they were in their
    places, it is the new file.
    """
    path = Path(path)
    new = path.parent / _WHOLE / path.name
    return new if new.exists() else path


def read_current(path, read):
    """What `read` makes of the content of a file of a model folder, beside savers too.

    They move it into its place meanwhile; where it is gone, it is read from there.

    Args:
        path: Of the file.
        read: Function of the path where the content is; it raises `OSError` or
            `ValueError` where it cannot read it.

    Raises:
        OSError, ValueError: As `read` raises them.
    """
    path = Path(path)
    while True:
        where = current(path)
        before = stamp(where)
        try:
            return read(where)
        except (OSError, ValueError):
            if where == path or before and stamp(where) == before:
                raise


def stamp(path):
    """What changes with a file's content; None where there is no file."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def replace_file(path, content):
    """Writes one file, that no other belongs to: whole or not at all.

    Args:
        path: In a folder that exists.
        content: bytes.

    Raises:
        OSError: It could not be done; the file of before is as it was.
    """
    path = Path(path)
    with _complete({path.name: content}, path.parent) as new:
        os.replace(new / path.name, path)


def replace_files(folder, contents):
    """Writes files into a folder: all of them or none, whenever it is stopped.

    They are written into a folder of their own, and its renaming is the moment from
    which `current` finds them. Each is then moved into its place; what was not moved,
    the next save moves, or whoever reads the folder by `settle`. Programs that ask
    neither see them change one by one, README.md last. Of several saves at a time each
    is whole, and the last to be complete stays; no lock is needed for that, since what
    is in place is never newer than what waits to be moved there.

    Args:
        folder: That exists.
        contents: {name: bytes}.

    Raises:
        OSError: It could not be done; the files of before are in force, or all new.
    """
    folder = Path(folder)
    with _complete(contents, folder) as new:
        while not _renamed(new, folder / _WHOLE):
            _move(folder)
    _move(folder)


def finish(folder) -> set[str]:
    """Moves new files into their places, where a save was stopped before that.

    Args:
        folder: A path, of a folder or of nothing.

    Returns:
        Names of what is in the folder; what a save that was killed left does not count.
    """
    folder = Path(folder)
    _move(folder)
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in found if not name.startswith(_UNFINISHED)}


def settle(folder):
    """As `finish`, for who only reads: what may not be written stays as it is."""
    with suppress(OSError):
        _move(Path(folder))


@contextmanager
def _complete(contents, folder):
    """A new folder inside a folder, with files that a crash leaves whole."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # its own save, or another, removes it
            if time.time() - left.stat().st_mtime > _FORGOTTEN:
                shutil.rmtree(left, ignore_errors=True)
    new = folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
    try:
        new.mkdir()
        for name, content in contents.items():
            with (new / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # else its name may survive a crash without it
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _renamed(new, whole):
    """Renames a folder; whether it could, for files of another save may be there."""
    try:
        os.rename(new, whole)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _move(folder):
    """Moves what waits into its place, whoever else does the same."""
    whole = folder / _WHOLE
    if not whole.is_dir() or whole.is_symlink():  # a link would be none of ours
        return
    with suppress(FileNotFoundError):
        for file in sorted(whole.iterdir(), reverse=True):
            with suppress(FileNotFoundError):
                os.replace(file, folder / file.name)
    try:
        whole.rmdir()
    except OSError as error:  # gone, or with files of the next save, which moves them
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
