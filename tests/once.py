"""Work that the workers of pytest-xdist share: the first does it, the others wait."""

import os

from filelock import FileLock


def once(tmp_path_factory, name, work):
    """A folder in which `work(folder)` has been done, by the worker that came first."""
    top = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent  # the workers' common folder
    folder = top / name
    with FileLock(top / f"{name}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            work(folder)
            (folder / "done").touch()
    return folder
