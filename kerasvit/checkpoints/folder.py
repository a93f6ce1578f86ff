"""Files of a folder that belong together: for their readers all old, or all new."""

import os
import shutil
import time
from pathlib import Path

_WHOLE = ".saved"  # holds new files, all complete, until each is in its place
_UNFINISHED = ".saving-"  # and a process: holds its new files until all are complete
_FORGOTTEN = 3600  # seconds after which files of a save that was killed are removed


def current(path) -> Path:
    """Where the content of a file of a model folder is: at its path, as a rule.

    Where a save was stopped after all new files stood, and before they were in their
    places, it is the new file.
    """
    path = Path(path)
    new = path.parent / _WHOLE / path.name
    return new if new.exists() else path


def replace_files(folder, contents):
    """Writes files into a folder: all of them or none, whenever it is stopped.

    They are written into a folder of their own, and its renaming is the moment from
    which `current` finds them. Each is then moved into its place; what was not moved,
    the next save moves. Programs that do not ask `current` see them change one by one.

    Args:
        folder: That exists.
        contents: {name: bytes}.

    Raises:
        OSError: It could not be done; the files of before are in force, or all new.
    """
    folder = Path(folder)
    for left in folder.glob(f"{_UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > _FORGOTTEN:
            shutil.rmtree(left, ignore_errors=True)
    unfinished = folder / f"{_UNFINISHED}{os.getpid()}"
    try:
        unfinished.mkdir(exist_ok=True)
        for name, content in contents.items():
            with (unfinished / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # else its name may survive a crash without it
        finish(folder)
        os.rename(unfinished, folder / _WHOLE)
        finish(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def finish(folder) -> set[str]:
    """Moves new files into their places, where a save was stopped before that.

    Args:
        folder: A path, of a folder or of nothing.

    Returns:
        Names of what is in the folder; what a save that was killed left does not count.
    """
    folder = Path(folder)
    whole = folder / _WHOLE
    if whole.is_dir():
        for file in whole.iterdir():
            os.replace(file, folder / file.name)
        whole.rmdir()
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in found if not name.startswith(_UNFINISHED)}
