"""Does the work of an experiment: trainings, measurements, the page."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keras
from command import folder_lock
from command.command_line import checking_input
from training.progress import console

from . import page, trainings
from .experiment import Experiment
from .settings import Settings
from .tasks import Task, compilation_cache, result_of, work

PLAIN_TEXT = {"highlight": False, "soft_wrap": True}
DAY = 86_400  # seconds
# Settings that do not change what is measured.
SHARED = ("name", "seeds", "jobs", "yes", "out", "sizes", "shares")


def run(experiment: Experiment, settings: Settings) -> dict | None:
    """Trains and measures what is left, and writes the page.

    Returns:
        The content of the experiment's JSON file; None if --full lacks --yes.

    Raises:
        BadInput: The input is wrong; raised before the training.
    """
    folder = Path(settings.out).expanduser()
    with checking_input():
        subjects = experiment.subjects(settings)
        if settings.full and not settings.yes:
            return announce(subjects, settings)
        measured = tasks_of(experiment, subjects, settings, folder)
    with folder_lock.explained_disk(folder), helpers(settings), compilation_cache():
        work(measured, folder)
    results = {
        label: [
            result_of(
                folder,
                measurement(
                    label, seed, of_seed(subjects, label, seed, folder), settings
                ),
            )
            for seed in range(settings.seeds)
        ]
        for label in subjects
    }
    found = page.write(experiment, settings, subjects, results, folder)
    console.print(found["page"], **PLAIN_TEXT)
    return found


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
    out = folder / "trainings" / trainings.name_of(config)
    return dataclasses.replace(config, out=str(out))


def measurement(label: str, seed: int, config, settings: Settings) -> str:
    """Returns the name of the task that measures a subject."""
    facts = dataclasses.asdict(settings)
    facts = {key: facts[key] for key in sorted(facts.keys() - set(SHARED))}
    if config is not None:
        facts = {"training": trainings.name_of(config)}
    text = json.dumps([facts, keras.backend.backend()])
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
                teacher = folder / "trainings" in Path(config.teacher or "").parents
                found[needs[0]] = Task(
                    functools.partial(trainings.train, config),
                    [_task_of(Path(config.teacher).parent)] if teacher else [],
                )
            work = functools.partial(
                _measure, experiment, label, seed, settings, config, folder, needs
            )
            name = measurement(label, seed, config, settings)
            found[name] = Task(work, needs)
    return found


def _task_of(training):
    """Returns the name of the task of a training in a folder."""
    return f"trainings/{Path(training).name}"


def _measure(experiment, label, seed, settings, config, folder, needs):
    """Returns the numbers of a subject."""
    keras.utils.clear_session()
    result = result_of(folder, *needs) if needs else {}
    return experiment.measure(trainings.Subject(label, seed, settings, config, result))


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
