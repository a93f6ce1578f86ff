"""The folder of a training: its settings, and whether it is finished."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import keras
from command import command_line, folder_lock, paths
from command.options import default_settings
from devices.devices import Devices
from training import training_data
from training.progress import console
from training.settings import NOT_TRAINING

import kerasvit

TRIAL = "trial.json"  # of `--method auto`, until the training is finished


@contextlib.contextmanager
def claimed_folder(
    config, dataset, devices: Devices, prefix: str = ""
) -> Iterator[Path]:
    """Keeps the folder of `claim_folder` to this command; of its processes, the first.

    Raises:
        command_line.BadInput: As `claim_folder` and `folder_lock.locked`.
    """
    with contextlib.ExitStack() as held:
        with command_line.checking_input(), devices.first_goes_first():
            folder = out_folder(config, prefix)
            if devices.is_first and not (folder / "result.json").exists():
                held.enter_context(folder_lock.locked(folder))
            claim_folder(config, dataset, devices, prefix)
        print_notices(config, dataset)
        yield folder


def out_folder(config, prefix: str = "") -> Path:
    """Returns the path of the results, as for `claim_folder`."""
    images = Path(config.data or config.dataset).resolve().name
    folder = config.out or f"runs/{prefix}{images}-{keras.backend.backend()}"
    return Path(os.path.expanduser(folder))


def claim_folder(config, dataset, devices: Devices, prefix: str = "") -> Path:
    """Returns the folder of the results, new or that of the same training.

    The first process creates it, before the others call this: they compare their
    settings with its own.

    Args:
        config: Dataclass of the settings; `out` is the folder's path, or None.
        dataset: `kerasvit.data.LabelledImages`.
        devices: Devices of the training, which may change before it continues.
        prefix: Prefix of the folder's name if `out` is None.

    Raises:
        ValueError: As for `claim`; or another process cannot read the
            folder.
    """
    folder = out_folder(config, prefix)
    file = folder.absolute() / "config.json"
    if not devices.is_first and not file.exists():
        raise ValueError(
            f"`out`: process 0 has written {file}, but process {devices.process} does "
            "not see it. Give a folder that all processes share."
        )
    return claim(folder, config, dataset)


def finished_result(folder: Path) -> dict | None:
    """Returns the content of result.json, which is written last, or None."""
    finished = folder / "result.json"
    if not finished.exists():
        return None
    result = json.loads(finished.read_text("utf-8"))
    if "results" in result:
        raise command_line.BadInput(
            f"{folder} holds the results of an earlier version, whose model is in "
            f"{folder}/model. To train again, give another --out."
        )
    console.print(f"{folder} is finished. To train again, delete it.")
    return result


def print_notices(config, dataset) -> None:
    """Prints which files are not read, and what the images are too few for."""
    root = Path(os.path.expanduser(config.data or ""))
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
    if few := training_data.few_images(config, dataset):
        console.print(few, highlight=False, soft_wrap=True)


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
    folder = Path(os.path.expanduser(folder))
    file = folder / "config.json"
    try:
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # The temporary file is that of an interrupted first write.
            ours = {f".{file.name}", *folder_lock.FILES}
            if {path.name for path in folder.iterdir()} - ours:
                raise ValueError(
                    f"`out`: {folder} holds other files. Give an empty or a new folder."
                )
            write_json(file, settings)
            return folder
        saved = json.loads(file.read_text("utf-8"))
        current = json.loads(json.dumps(settings))
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
    unfinished.write_text(json.dumps(content, indent=1), "utf-8")
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
