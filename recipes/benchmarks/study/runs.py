"""What the studies share: measurements, and in several processes time and files.

    result = runs.train("claim", study, dataset, names)
    runs.write("claim", study, {**result, "rows": rows}, page, draw)

`study` has the fields `jobs`, `out` and `summary`.
"""

import contextlib
import dataclasses
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from command.command_line import BadInput, checking_input
from devices import devices
from pretrain import pretrain
from training import run_folder, step_plan, training_data
from training.progress import console
from training.run_folder import write_json
from training.settings import NOT_TRAINING
from training.step_log import COLUMNS

import kerasvit
from kerasvit.inspection import largest_eigenvalue

from . import tasks


def train(module: str, study, dataset, names: list[str]) -> dict:
    """Does the tasks that are left, or with `summary` none.

    Args:
        module: Module of this package, as for `tasks.in_processes`.
        study: Settings.
        dataset: `kerasvit.data.LabelledImages`.
        names: Names of all tasks.

    Returns:
        What result.json has of every study. "measured" is {name: measurements} of the
        finished tasks, and "tasks" the number of all.

    Raises:
        BadInput: A task failed or was stopped; the folder is that of another study; or
            with `summary` no task is finished.
    """
    with checking_input():
        folder = run_folder.claim_folder(study, dataset, devices.ONE, f"{module}-")
    if not study.summary:
        tasks.in_processes(module, study, study.jobs, names, folder)
        shutil.rmtree(folder / "locks", ignore_errors=True)
    results = {name: tasks.result_of(folder, name) for name in names}
    measured = {name: found for name, found in results.items() if found is not None}
    if not measured:
        raise BadInput(f"`summary`: no training is finished in {folder}.")
    settings = dataclasses.asdict(study)
    return {
        "settings": {k: v for k, v in settings.items() if k not in NOT_TRAINING},
        "backend": keras.backend.backend(),
        "folder": str(folder),
        "images": dataset.counts,
        "test": dataset.test_name,
        "tasks": len(names),
        "measured": measured,
        **{
            total: round(sum(found[total] for found in measured.values()))
            for total in ("seconds", "cpu_seconds")
        },
    }


def is_complete(result: dict) -> bool:
    """Returns whether all tasks of a study are finished.

    Args:
        result: Result of `train`.
    """
    return len(result["measured"]) == result["tasks"]


def state_of(result: dict) -> str:
    """Returns sentences: whether tasks are missing, and the time of the finished ones.

    Args:
        result: Result of `train`.
    """
    done, count = len(result["measured"]), result["tasks"]
    incomplete = (
        f"**Incomplete: {done} of {count} parts of the study are finished; the table "
        "decides nothing yet.** "
    )
    return (
        f"{'' if is_complete(result) else incomplete}"
        f"The trainings took {result['seconds'] / 3600:.1f} process hours, "
        f"{result['cpu_seconds'] / 3600:.1f} CPU hours, on {result['backend']}."
    )


def write(
    name: str, study, result: dict, page: str, draw: Callable[[Path], None]
) -> None:
    """Writes the results, the page and the figure of a study.

    Args:
        name: Name of the files.
        study: Settings. `summary` is the folder of the files, if given.
        result: Result of `train`, and what the study has computed of it.
        page: Table and sentences, as Markdown.
        draw: Draws the figure into a file.
    """
    folder = Path(study.summary or result["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder / f"{name}.png")
    (folder / f"{name}.md").write_text(page)
    if study.summary:
        result = {key: value for key, value in result.items() if key != "folder"}
    write_json(folder / (f"{name}.json" if study.summary else "result.json"), result)


def time_steps(config) -> dict:
    """Returns the seconds of a step, and of all steps, of a short training.

    Args:
        config: `pretrain.Config`; its steps are replaced.
    """
    steps = 2 * max(step_plan.MIN_ROUND_STEPS, config.steps // 10)
    config = dataclasses.replace(config, steps=steps, epochs=None, validations=2)
    found = pretrain(config)
    log = next(Path(config.out).glob("log_*.csv")).read_text().splitlines()
    # Of the second half: the first compiles.
    speed = float(log[-1].split(",")[COLUMNS.index("images_per_second")])
    step = config.batch_size / speed
    return {"step": step, "training": steps * step, "accuracy": found["accuracy"]}


def estimate(module: str, study, counts: dict[str, int]) -> dict:
    """Returns the number of trainings and the time of a study, from short trainings.

    Args:
        module: As for `train`.
        study: Settings; its tasks are the short trainings.
        counts: {name of a short training: number of trainings that are like it}.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tasks.in_processes(module, study, study.jobs, list(counts), folder)
        timed = {name: tasks.result_of(folder, name) for name in counts}
    kinds, total = [], 0.0
    for name, count in counts.items():
        found = timed[name]
        other = found["seconds"] - found["training"]
        total += count * (study.steps * found["step"] + other)
        kinds.append(
            {"name": name.replace("_", " "), "trainings": count}
            | {"seconds_per_step": found["step"], "other_seconds": other}
        )
    return {"kinds": kinds, "steps": study.steps, "minutes": total / study.jobs / 60}


def report(name: str, study, result: dict) -> None:
    """Prints the page of a study and where its figure is, or the estimated time.

    Args:
        name: Name of the files.
        study: Settings.
        result: Result of `estimate`, or of `train` after `write`.
    """
    options = {"highlight": False, "soft_wrap": True}
    if "kinds" not in result:
        folder = Path(study.summary or result["folder"])
        console.print((folder / f"{name}.md").read_text(), **options)
        console.print(f"Picture: {folder}/{name}.png", soft_wrap=True)
        return
    for kind in result["kinds"]:
        console.print(
            f"{kind['name']}: {kind['trainings']} trainings, {result['steps']} steps, "
            f"{1000 * kind['seconds_per_step']:.0f} ms per step and "
            f"{kind['other_seconds']:.0f} s for the rest",
            **options,
        )
    count = sum(kind["trainings"] for kind in result["kinds"])
    console.print(f"{count} trainings, about {result['minutes']:.0f} minutes.")


def measure(config, curved_images: int) -> dict:
    """Returns the loss on the training images and its Hessian's largest eigenvalue.

    The images for the Hessian are drawn at random, the same for all trainings with the
    same training images.

    Args:
        config: `pretrain.Config` of a finished training.
        curved_images: Number of training images for the Hessian.
    """
    model = kerasvit.from_pretrained(Path(config.out) / "model")
    train = training_data.find_data(config, devices.ONE).train
    options = training_data.batch_options(config, model)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    count = min(curved_images, len(train))
    batches = math.ceil(count / config.batch_size)
    options["batch_size"] = count // batches  # may omit a few images
    sample = train.batches(**options).with_epochs_of(batches)
    sample = list(sample.as_numpy_iterator())
    return {
        "loss": float(model.evaluate(train.images.batches(**options), verbose=0)),
        "sharpness": largest_eigenvalue(model, sample, tolerance=0.02),
    }


def mean_and_deviation(values) -> tuple[float, float]:
    """Returns mean and standard deviation of a sample, the latter 0 for one value."""
    return float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1)))


@contextlib.contextmanager
def compilation_cache(folder: Path):
    """On JAX, compiles programs once for all seeds with a cache in a folder."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    def set_cache(path):
        jax.config.update("jax_compilation_cache_dir", path)
        reset_cache()  # JAX reads the path only once

    before = jax.config.jax_compilation_cache_dir
    set_cache(str(folder.resolve()))
    try:
        yield
    finally:
        set_cache(before)
    shutil.rmtree(folder, ignore_errors=True)
