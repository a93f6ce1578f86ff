"""Tasks that several processes share.

The result of a task is a file, NAME/measured.json, written atomically: finished tasks
are never repeated. Each process takes tasks that no other does, and the system frees
those of a process that was killed.
"""

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import keras
from devices import device_name
from filelock import FileLock, Timeout
from training.progress import console
from training.run_folder import write_json

WAIT = 0.5  # seconds until a process looks for tasks again
PLAIN_TEXT = {"highlight": False, "soft_wrap": True}


@dataclasses.dataclass(frozen=True)
class Task:
    """A part of an experiment.

    Attributes:
        work: Does it and returns its results, which JSON can hold.
        needs: Names of the tasks whose results `work` reads.
    """

    work: Callable[[], dict]
    needs: Sequence[str] = ()


def work(tasks: dict[str, Task], folder: Path) -> None:
    """Does all tasks, in their order, with other processes that do the same."""
    while any(result_of(folder, name) is None for name in tasks):
        if not any(_done_now(tasks, name, folder) for name in tasks):
            time.sleep(WAIT)


def result_of(folder: Path, name: str) -> dict | None:
    """Returns the result of a task, or None if it is not finished."""
    file = folder / name / "measured.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _done_now(tasks, name, folder):
    """Whether the task was free and is done now."""
    task = tasks[name]
    if result_of(folder, name) is not None:
        return False
    if any(result_of(folder, needed) is None for needed in task.needs):
        return False
    path = folder / "locks" / name.replace("/", "-")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:  # another process does it
        return False
    try:
        if result_of(folder, name) is not None:
            return False
        _do(tasks, name, folder)
    finally:
        lock.release()
    return True


def _do(tasks, name, folder):
    """Does a task, and keeps its result with its time, date and machine."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = tasks[name].work()
    found["seconds"] = round(time.perf_counter() - wall, 2)
    found["cpu_seconds"] = round(time.process_time() - cpu, 2)
    found["date"] = date.today().isoformat()
    found["machine"] = device_name.of_first()
    (folder / name).mkdir(parents=True, exist_ok=True)
    write_json(folder / name / "measured.json", found)
    done = sum(result_of(folder, each) is not None for each in tasks)
    seconds = f"{found['seconds']:.0f} s, {found['cpu_seconds']:.0f} CPU s"
    console.print(f"{done} of {len(tasks)}: {name}, {seconds}", **PLAIN_TEXT)


@contextlib.contextmanager
def compilation_cache() -> Iterator[None]:
    """On JAX, compiles programs once for all seeds, with a cache in a folder."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    def set_cache(path):
        jax.config.update("jax_compilation_cache_dir", path)
        reset_cache()  # JAX reads the path only once

    before = jax.config.jax_compilation_cache_dir
    with tempfile.TemporaryDirectory() as folder:
        set_cache(folder)
        try:
            yield
        finally:
            set_cache(before)
