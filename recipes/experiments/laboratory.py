"""Does the work of an experiment: trainings, measurements, the page."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keras
from command import command_line, folder_lock
from command.command_line import BadInput, checking_input
from devices import device_name
from devices.devices import ONE
from training import training_data
from training.progress import console

from . import catalogue, page, trainings
from .experiment import Experiment
from .settings import Settings
from .tasks import PLAIN_TEXT, Task, compilation_cache, result_of, work
from .trainings import TRAININGS

DAY = 86_400  # seconds
# Settings that do not change what is measured.
SHARED = ("name", "seeds", "jobs", "yes", "out", "sizes", "shares")


def run(experiment: Experiment, settings: Settings) -> dict | None:
    """Trains and measures what is left, and writes the page.

    Returns:
        The content of the experiment's JSON file; None if --full lacks --yes.

    Raises:
        BadInput: The input is wrong; raised before the trainings where it can be
            known.
    """
    folder = Path(os.path.expanduser(settings.out))
    with checking_input():
        subjects = experiment.subjects(settings)
        check(experiment, subjects, settings, folder)
        if settings.full and not settings.yes:
            return announce(subjects, settings)
        measured = tasks_of(experiment, subjects, settings, folder)
    with folder_lock.explained_disk(folder), helpers(settings), compilation_cache():
        work(measured, folder)
    found = page.write(
        experiment,
        settings,
        subjects,
        results_of(subjects, settings, folder),
        folder,
    )
    console.print(found["page"], **PLAIN_TEXT)
    return found


def check(experiment: Experiment, subjects: dict, settings: Settings, folder: Path):
    """Raises a `ValueError` for what would end the work, before it begins.

    These are images that are not there or too few, in any of the trainings, and --full
    on a processor.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`out`: {folder} is a file. Give a folder.")
    if settings.full and not settings.steps and not device_name.accelerator():
        raise ValueError(
            "`full`: this device is a processor, on which the paper's trainings would "
            "take years. Use an accelerator, or try a few --steps."
        )
    if experiment.check:
        experiment.check(settings)
    checked = set()
    for label, config in subjects.items():
        data = config and (config.dataset, config.data, config.classes, config.share)
        if config is None or data in checked:
            continue
        checked.add(data)
        command_line.check(config)
        images = len(training_data.find_data(config, ONE).train)
        if images < config.batch_size:
            raise ValueError(
                f"{label} trains with batches of {config.batch_size:,} images, and has "
                f"{images:,}. Give more images, or larger --shares."
            )


def results_of(subjects: dict, settings: Settings, folder: Path) -> dict:
    """Returns {label: numbers of each seed} of finished measurements.

    A seed with a training that diverged is left out.

    Raises:
        BadInput: No seed is left.
    """
    seeds = []
    for seed in range(settings.seeds):
        rows = {}
        for label in subjects:
            config = of_seed(subjects, label, seed, folder)
            rows[label] = result_of(folder, measurement(label, seed, config, settings))
        diverged = [label for label, row in rows.items() if row.get("diverged")]
        for label in diverged:
            console.print(
                f"{label}, seed {seed}: the training diverged. The page leaves out "
                "this seed.",
                **PLAIN_TEXT,
            )
        if not diverged:
            seeds.append(rows)
    if not seeds:
        raise BadInput(
            "A training of each seed diverged: the loss became infinite or NaN. Give "
            "other images, or more --seeds."
        )
    return {label: [rows[label] for rows in seeds] for label in subjects}


def announce(subjects: dict, settings: Settings) -> None:
    """Prints how long the trainings of --full take on this device."""
    total = 0.0
    for label, config in subjects.items():
        if config is None:
            continue
        seconds, steps = trainings.seconds_per_step(config)
        total += seconds * steps * settings.seeds
        console.print(
            f"{label}: {settings.seeds} × {steps:,} steps of {config.batch_size:,} "
            f"images, {seconds:.3g} s each: {seconds * steps / DAY:.3g} days per seed",
            **PLAIN_TEXT,
        )
    console.print(
        f"All trainings: about {total / DAY:.3g} days on this device, without "
        "measurements. Give --yes to begin; a stopped command goes on.",
        **PLAIN_TEXT,
    )


def of_seed(subjects: dict, label: str, seed: int, folder: Path):
    """Returns the settings of a subject's training with its seed and its folder.

    A `teacher` that is "@" and a label is the model of that subject.
    """
    config = subjects[label]
    if config is None:
        return None
    config = dataclasses.replace(config, seed=seed)
    if config.teacher and (taught_by := config.teacher.removeprefix("@")) in subjects:
        teacher = of_seed(subjects, taught_by, seed, folder).out
        config = dataclasses.replace(config, teacher=f"{teacher}/model")
    out = folder / TRAININGS / trainings.name_of(config)
    return dataclasses.replace(config, out=str(out))


def measurement(label: str, seed: int, config, settings: Settings) -> str:
    """Returns the name of the task that measures a subject: it has a hash of how."""
    facts = dataclasses.asdict(settings)
    facts = {key: facts[key] for key in sorted(facts.keys() - set(SHARED))}
    if config is not None:
        facts = {"training": trainings.name_of(config)}
    text = json.dumps([facts, catalogue.code(settings.name), keras.backend.backend()])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return (
        f"{settings.name}/{label.replace(' ', '_').replace('/', '_')}-{seed}-{digest}"
    )


def tasks_of(experiment, subjects, settings, folder) -> dict[str, Task]:
    """Returns {name: task} of all trainings and measurements, seed by seed."""
    found = {}
    for seed in range(settings.seeds):
        for label in subjects:
            config, needs = of_seed(subjects, label, seed, folder), []
            if config is not None:
                needs = [_task_of(config.out)]
                teacher = folder / TRAININGS in Path(config.teacher or "").parents
                taught = [_task_of(Path(config.teacher).parent)] if teacher else []
                train = functools.partial(_train, config, folder, taught)
                found[needs[0]] = Task(train, taught)
            work = functools.partial(
                _measure, experiment, label, seed, settings, config, folder, needs
            )
            name = measurement(label, seed, config, settings)
            found[name] = Task(work, needs)
    return found


def _task_of(training):
    """Returns the name of the task of a training in a folder."""
    return f"{TRAININGS}/{Path(training).name}"


def _train(config, folder, taught):
    """Trains, unless the teacher's training diverged."""
    if any(result_of(folder, name).get("diverged") for name in taught):
        return {"diverged": True}
    return trainings.train(config)


def _measure(experiment, label, seed, settings, config, folder, needs):
    """Returns the numbers of a subject."""
    keras.utils.clear_session()
    result = result_of(folder, *needs) if needs else {}
    if result.get("diverged"):
        return {"diverged": True}
    subject = trainings.Subject(label, seed, settings, config, result)
    with checking_input():
        return experiment.measure(subject)


@contextlib.contextmanager
def helpers(settings: Settings) -> Iterator[None]:
    """Context in which `jobs - 1` other processes do the same work."""
    command = [sys.executable, *sys.argv, "--jobs", "1"]
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(settings.jobs - 1)
    ]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.wait()
