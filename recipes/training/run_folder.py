"""The folder of a training: its lock, its settings, and whether it is finished.

The operating system frees the lock of a killed command. On a file system without locks
two commands are not kept apart.
"""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import keras
from command import command_line, paths
from command.command_line import BadInput
from command.options import default_settings
from devices import devices
from filelock import FileLock, Timeout
from training.progress import console
from training.settings import NOT_TRAINING

import kerasvit

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
        (folder / OWNER).write_text(json.dumps([os.getpid(), socket.gethostname()]))
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
        process, host = json.loads((folder / OWNER).read_text())
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


@contextlib.contextmanager
def claimed_folder(
    config, dataset, here: devices.Devices, prefix: str = ""
) -> Iterator[Path]:
    """Keeps the folder of `claim_folder` to this command; of its processes, the first.

    Raises:
        command_line.BadInput: As `claim_folder` and `locked`.
    """
    with contextlib.ExitStack() as held:
        with command_line.checking_input(), here.first_goes_first():
            folder = out_folder(config, prefix)
            if here.is_first and not (folder / "result.json").exists():
                held.enter_context(locked(folder))
            claim_folder(config, dataset, here, prefix)
        print_notices(config, dataset)
        yield folder


def out_folder(config, prefix: str = "") -> Path:
    """Returns the path of the results, as for `claim_folder`."""
    images = Path(config.data or config.dataset).resolve().name
    folder = config.out or f"runs/{prefix}{images}-{keras.backend.backend()}"
    return Path(folder).expanduser()


def claim_folder(config, dataset, here: devices.Devices, prefix: str = "") -> Path:
    """Returns the folder of the results, new or that of the same training.

    The first process creates it, before the others call this: they compare their
    settings with its own.

    Args:
        config: Dataclass of the settings; `out` is the folder's path, or None.
        dataset: `kerasvit.data.LabelledImages`.
        here: Devices of the training, which may change before it continues.
        prefix: Prefix of the folder's name if `out` is None.

    Raises:
        ValueError: As for `claim`; or another process cannot read the
            folder.
    """
    folder = out_folder(config, prefix)
    file = folder.absolute() / "config.json"
    if not here.is_first and not file.exists():
        raise ValueError(
            f"`out`: process 0 has written {file}, but process {here.process} does "
            "not see it. Give a folder that all processes share."
        )
    return claim(folder, config, dataset)


def finished_result(folder: Path) -> dict | None:
    """Returns the content of result.json, which is written last, or None."""
    finished = folder / "result.json"
    if not finished.exists():
        return None
    result = json.loads(finished.read_text())
    if "results" in result:
        raise command_line.BadInput(
            f"{folder} holds the results of an earlier version, whose model is in "
            f"{folder}/model. To train again, give another --out."
        )
    console.print(f"{folder} is finished. To train again, delete it.")
    return result


def print_notices(config, dataset) -> None:
    """Prints which files are not read, and whether a batch is too large."""
    root = Path(config.data or "").expanduser()
    if config.data and root.is_dir() and (others := kerasvit.data.unread_files(root)):
        console.print(
            f"Not read: {others}. Files in class folders are read with the extensions "
            f"{', '.join(sorted(kerasvit.data.SUFFIXES))}. "
            f"{kerasvit.data.CONVERT_HEIC if '.hei' in others else ''}"
        )
    count = len(dataset.train)
    if count < config.batch_size:
        console.print(
            f"A batch of {config.batch_size:,} images is larger than the training set "
            f"of {count:,}: every step uses images more than once. A smaller "
            "--batch-size saves time."
        )


def claim(folder: str | os.PathLike, config, dataset) -> Path:
    """Creates the folder of a training, or returns that of the same training.

    Args:
        folder: Path of the folder.
        config: Dataclass of all settings; those of `NOT_TRAINING` are ignored.
        dataset: `kerasvit.data.LabelledImages`.

    Raises:
        ValueError: The folder contains a training with other settings or other files,
            or cannot be written.
    """
    settings = dataclasses.asdict(config)
    for name in NOT_TRAINING:
        settings.pop(name, None)
    for name in ("data", "weights", "teacher"):  # independent of the working directory
        if settings.get(name):
            settings[name] = paths.absolute(settings[name])
    settings["backend"] = keras.backend.backend()
    settings["label_names"] = dataset.class_names
    settings["images"] = dataset.counts
    folder = Path(folder).expanduser()
    file = folder / "config.json"
    try:
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # The temporary file is that of an interrupted first write.
            ours = {f".{file.name}", *FILES}
            if {path.name for path in folder.iterdir()} - ours:
                raise ValueError(
                    f"`out`: {folder} holds other files. Give an empty or a new folder."
                )
            write_json(file, settings)
            return folder
        saved, current = json.loads(file.read_text()), json.loads(json.dumps(settings))
    except OSError as error:
        raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is damaged: {error}. Delete {folder}.") from error
    old = [p for each in ("round_*", "step_*") for p in folder.glob(f"*_SAM*/{each}")]
    if old:
        raise ValueError(
            f"{folder} holds an unfinished training of an earlier version, which this "
            "one cannot continue. Give another --out to begin anew, or delete it."
        )
    # A run of an earlier version does not state settings that it did not have.
    defaults = json.loads(json.dumps(default_settings(config)))
    saved = {**{key: defaults[key] for key in current.keys() & defaults}, **saved}
    differing = [
        f"  {key}: {saved.get(key)} there, {current.get(key)} now"
        for key in {**saved, **current}
        if saved.get(key) != current.get(key)
    ]
    if differing:
        raise ValueError(
            f"{folder} holds a training with other settings. Use another folder with "
            "--out, or delete this one. The settings differ in\n" + "\n".join(differing)
        )
    return folder


def write_json(path: Path, content) -> None:
    """Writes a JSON file atomically."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(content, indent=1))
    replace_file(unfinished, path)


def replace_file(unfinished: Path, path: Path) -> None:
    """Gives a finished file or folder its name, also if the machine then fails.

    It does so atomically. A folder must have a new name.
    """
    for each in [unfinished, *unfinished.rglob("*")]:
        if each.is_file():
            with each.open("r+b") as file:
                os.fsync(file.fileno())
    os.replace(unfinished, path)
