"""A folder that appears when it is complete."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from training import folder_lock


def check(folder: str, replace: bool) -> Path:
    """Returns the path of a folder that may be written.

    Raises:
        ValueError: It exists and is not to be replaced, or is no folder of an export.
    """
    path = Path(folder).expanduser()
    if not path.exists() and not path.is_symlink():
        return path
    if not replace:
        raise ValueError(
            f"`out`: {path} exists. Give another --out, or --replace to replace it."
        )
    if not (path / "export.json").is_file():
        raise ValueError(
            f"`replace`: {path} is not replaced, for it has no export.json and is no "
            "export. Give another --out."
        )
    return path


@contextlib.contextmanager
def complete(path: Path, replace: bool) -> Iterator[Path]:
    """Yields an empty folder, which becomes `path` if the block succeeds.

    Raises:
        ValueError: As `check`; or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise ValueError(f"`out`: {path} cannot be written: {error}.") from error
    written = Path(temporary) / path.name
    try:
        written.mkdir()
        with folder_lock.explained_disk(Path(temporary)):
            yield written
        if check(str(path), replace).exists():  # another process may have written it
            path.rename(Path(temporary) / "replaced")
        written.rename(path)
    finally:
        shutil.rmtree(temporary)
