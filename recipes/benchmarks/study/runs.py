"""What the studies share: their trainings, measurements and files.

    result = runs.train("claim", study, dataset, tasks_of)
    runs.write("claim", study, {**result, "rows": rows}, page, draw)

The result of a task is in `FOLDER/NAME/measured.json`, which is written atomically:
finished tasks are never repeated, and the same command does the remaining ones. Started
again while it runs, it takes tasks that no other process does.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from command.command_line import BadInput, checking_input
from devices.devices import ONE
from experiments.tasks import Task, compilation_cache, result_of, work
from training import run_folder, training_data
from training.progress import console
from training.run_folder import write_json
from training.settings import NOT_TRAINING

import kerasvit
from kerasvit.inspection import largest_eigenvalue

PLAIN_TEXT = {"highlight": False, "soft_wrap": True}


def train(
    name: str, study, dataset, tasks_of: Callable[[Path], dict[str, Task]]
) -> dict:
    """Does the tasks that are left, or with `summary` none.

    Args:
        name: Name of the study.
        study: Settings, with the fields `out` and `summary`.
        dataset: `kerasvit.data.LabelledImages`.
        tasks_of: Function of the folder that returns {name: task}.

    Returns:
        What result.json has of every study. "measured" is {name: measurements} of the
        finished tasks, and "tasks" the number of all.

    Raises:
        BadInput: A training failed; the folder is that of another study; or with
            `summary` no task is finished.
    """
    with checking_input():
        folder = run_folder.claim_folder(study, dataset, ONE, f"{name}-")
    tasks = tasks_of(folder)
    if not study.summary:
        with compilation_cache():
            work(tasks, folder)
    results = {task: result_of(folder, task) for task in tasks}
    measured = {task: found for task, found in results.items() if found is not None}
    if not measured:
        raise BadInput(f"`summary`: no training is finished in {folder}.")
    settings = dataclasses.asdict(study)
    return {
        "settings": {k: v for k, v in settings.items() if k not in NOT_TRAINING},
        "backend": keras.backend.backend(),
        "folder": str(folder),
        "images": dataset.counts,
        "test": dataset.test_name,
        "tasks": len(tasks),
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
    """Writes the results, the page and the figure of a study, and prints the page.

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
    console.print(page, **PLAIN_TEXT)
    console.print(f"Picture: {folder}/{name}.png", soft_wrap=True)


def measure(config, curved_images: int) -> dict:
    """Returns the loss on the training images and its Hessian's largest eigenvalue.

    The images for the Hessian are drawn at random, the same for all trainings with the
    same training images.

    Args:
        config: `pretrain.Config` of a finished training.
        curved_images: Number of training images for the Hessian.
    """
    model = kerasvit.from_pretrained(Path(config.out) / "model")
    train = training_data.find_data(config, ONE).train
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
