"""Runs the tasks of a study in several processes, which may be killed at any moment.

    tasks.work({"a": Task(train_a), "b": Task(train_b, needs=("a",))}, folder)
    tasks.in_processes("claim", settings, 2, list_of_names, folder)

Every process goes through the same tasks and does those that no other process does. A
task's result is in `folder/NAME/measured.json`, which is written atomically: finished
tasks are never repeated, and the same command does the remaining ones.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from command.command_line import BadInput
from filelock import FileLock, Timeout
from training.progress import console
from training.run_folder import write_json

ONE_THREAD = {  # of each backend, and of TensorFlow, which reads the images
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
WAIT = 0.5  # seconds until a process looks for tasks again
MAX_END = 60  # seconds until a process that should end is killed


@dataclasses.dataclass(frozen=True)
class Task:
    """A part of a study.

    Args:
        work: Does it and returns its results, which JSON can hold.
        needs: Names of the tasks whose results `work` reads.
    """

    work: Callable[[], dict]
    needs: Sequence[str] = ()


def result_of(folder: Path, name: str) -> dict | None:
    """Returns the result of a task, or None if it is not finished."""
    file = folder / name / "measured.json"
    return json.loads(file.read_text()) if file.exists() else None


def work(tasks: dict[str, Task], folder: Path) -> None:
    """Does all tasks, in their order, with other processes that do the same.

    The results also hold `seconds` and `cpu_seconds` of the process that finished the
    task; earlier ones that were killed are not counted.
    """
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    while any(result_of(folder, name) is None for name in tasks):
        if not any(_done_now(tasks, name, folder, locks) for name in tasks):
            time.sleep(WAIT)


def _done_now(tasks, name, folder, locks):
    """Whether the task was free and is done now."""
    task = tasks[name]
    if any(result_of(folder, needed) is None for needed in task.needs):
        return False
    # The system releases the lock if the process is killed.
    lock = FileLock(locks / name)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    try:
        if result_of(folder, name) is not None:
            return False
        wall, cpu = time.perf_counter(), time.process_time()
        found = task.work()
        found["seconds"] = round(time.perf_counter() - wall, 2)
        found["cpu_seconds"] = round(time.process_time() - cpu, 2)
        (folder / name).mkdir(exist_ok=True)
        write_json(folder / name / "measured.json", found)
        return True
    finally:
        lock.release()


def in_processes(
    module: str, settings, count: int, names: Sequence[str], folder: Path
) -> None:
    """Does all tasks in `count` processes with one thread each, and prints progress.

    Args:
        module: Module of this package; its `main(settings, folder, number)` calls
            `work`.
        settings: Dataclass, which is passed as JSON.
        count: Number of processes.
        names: Names of all tasks.
        folder: Folder of the results. `process_N.log` has what process N prints.

    Raises:
        BadInput: A process failed, or was stopped before all tasks were finished.
    """
    done = {name for name in names if result_of(folder, name) is not None}
    if len(done) == len(names):
        return
    console.print(
        f"{len(names) - len(done)} of {len(names)} trainings are left. What they print "
        f"is in {folder}/process_*.log.",
        soft_wrap=True,
    )
    given = json.dumps([module, dataclasses.asdict(settings), str(folder)])
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(_process(given, i, folder)) for i in range(count)
        ]
        while any(process.poll() is None for process in processes):
            done = _print_new(names, done, folder)
            if any(process.poll() for process in processes):
                break
            time.sleep(WAIT)
    done = _print_new(names, done, folder)
    for number, process in enumerate(processes):
        if process.returncode and len(done) < len(names):
            log = folder / f"process_{number}.log"
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise BadInput(f"A training failed, see {log}. {' '.join(last)}")
    if len(done) < len(names):
        raise BadInput(
            f"Stopped after {len(done)} of {len(names)} trainings. The same command "
            "continues."
        )


def _print_new(names, done, folder):
    for name in names:
        found = None if name in done else result_of(folder, name)
        if found is not None:
            done = done | {name}
            console.print(
                f"{len(done)} of {len(names)}: {name}, {found['seconds']:.0f} s, "
                f"{found['cpu_seconds']:.0f} CPU s",
                highlight=False,
                soft_wrap=True,
            )
    return done


@contextlib.contextmanager
def _process(given, number, folder):
    """Starts a process; ends it, so that its training is saved, if this one ends."""
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with (folder / f"process_{number}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, given, str(number)],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl+C does not reach it
        )
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(MAX_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent():
    """Sends this process SIGTERM, which saves its training, when its stdin closes."""

    def wait():
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    import importlib

    from command.command_line import main

    [(NAME, SETTINGS, FOLDER), NUMBER] = json.loads(sys.argv[1]), int(sys.argv[2])
    MODULE = importlib.import_module(f"{__package__}.{NAME}")
    main(lambda: MODULE.main(SETTINGS, Path(FOLDER), NUMBER))
