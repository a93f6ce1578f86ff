"""Functions of `finetune.py` and `pretrain.py` before and after `compile` and `fit`.

A training consists of rounds with the same number of steps, after which it is
validated. It is saved after each round and every `--save-minutes`, and the same command
continues from there. Printed output counts steps, not rounds.
"""

import contextlib
import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import keras
from command import command_line, names
from devices import devices
from scoring import confusion
from scoring.outputs import Predictor
from training import folder_lock, progress, training_data
from training.card_facts import facts
from training.progress import console, draw_curves, write_json
from training.saving import Progress
from training.step_log import StepLog

import kerasvit

MAX_ROUNDS, MIN_ROUND_STEPS = 50, 10  # rounds per training, steps per round

log = logging.getLogger("kerasvit")


def find_variant(config, small: dict) -> kerasvit.Variant | None:
    """Sets dtype policy and seed, and returns the variant of the model.

    Args:
        config: Dataclass of the settings.
        small: {name: variant} of the models that the recipe defines.

    Returns:
        The variant; None if the weights determine the model.
    """
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(config.seed)
    name = config.model or ("small" if not config.weights else None)
    if name is None:
        return None
    names.check_model(name, small)
    return small.get(name) or getattr(kerasvit, name)


def check_weights(config, small: dict) -> None:
    """Raises a `ValueError` for weights of another model, before reading images.

    Args:
        config, small: As for `find_variant`.
    """
    variant = find_variant(config, small)
    if not config.weights:
        return
    level = log.level
    log.setLevel(logging.ERROR)  # `build` logs the same messages again
    try:
        if variant:
            variant.preprocessing(config.weights)
        else:
            kerasvit.from_pretrained(config.weights)
    finally:
        log.setLevel(level)


def planned_images(config, dataset) -> int:
    """Returns the number of images of an epoch: all, or those of the share."""
    return (config.same_steps and dataset.whole) or len(dataset.train)


def plan(config, count: int) -> tuple[int, int]:
    """Returns (number of rounds, steps per round).

    Args:
        config: Dataclass of the settings.
        count: Result of `planned_images`.
    """
    steps_per_epoch = max(1, round(count / config.batch_size))
    steps = config.steps or config.epochs * steps_per_epoch
    # A round is an epoch, unless there are too many or they have too few steps.
    least = max(steps_per_epoch, MIN_ROUND_STEPS)
    most = getattr(config, "validations", MAX_ROUNDS)
    rounds = min(most, max(1, round(steps / least)))
    round_steps = math.ceil(steps / rounds)
    return math.ceil(steps / round_steps), round_steps


def apply_plan(config, reasons: dict, rounds: int, round_steps: int):
    """Returns the settings with the steps of the plan and a limited warm-up.

    If the number of steps was increased, its reason in `reasons` is extended.
    """
    steps = rounds * round_steps
    warmup = min(config.warmup_steps, steps // 5)
    config = dataclasses.replace(config, warmup_steps=warmup)
    if "steps" not in reasons or config.steps == steps:
        return config
    reasons["steps"] += f"; raised to a multiple of {round_steps}"
    return dataclasses.replace(config, steps=steps)


@contextlib.contextmanager
def claimed_folder(
    config, dataset, here: devices.Devices, prefix: str = ""
) -> Iterator[Path]:
    """Keeps the folder of `claim_folder` to this command; of its processes, the first.

    Raises:
        command_line.BadInput: As `claim_folder` and `folder_lock.locked`.
    """
    with contextlib.ExitStack() as held:
        with command_line.checking_input(), here.first_goes_first():
            folder = out_folder(config, prefix)
            if here.is_first and not (folder / "result.json").exists():
                held.enter_context(folder_lock.locked(folder))
            claim_folder(config, dataset, here, prefix)
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
        ValueError: As for `progress.claim_folder`; or another process cannot read the
            folder.
    """
    folder = out_folder(config, prefix)
    file = folder.absolute() / "config.json"
    if not here.is_first and not file.exists():
        raise ValueError(
            f"`out`: process 0 has written {file}, but process {here.process} does "
            "not see it. Give a folder that all processes share."
        )
    return progress.claim_folder(folder, config, dataset)


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


def state_folder(folder: Path, name: str) -> Path:
    """Returns the folder with the state of a training until all are finished."""
    return folder / name.replace(" ", "_")


def saved_progress(
    config,
    folder: Path,
    name: str,
    rounds: int,
    round_steps: int,
    here: devices.Devices = devices.ONE,
) -> Progress:
    """Returns the callback that saves, logs and continues a training.

    Args:
        config: Dataclass of the settings.
        folder: Folder of the results.
        name: Name of the training.
        rounds, round_steps: Result of `plan`.
        here: Devices of the training.
    """
    states = state_folder(folder, name)
    events = folder / "tensorboard" / states.name if config.tensorboard else None
    return Progress(
        states,
        config.seed,
        rounds,
        round_steps,
        batch_size=config.batch_size,
        parts=config.accumulate,
        log=StepLog(folder / f"log_{states.name}.csv", events),
        minutes=config.save_minutes,
        devices=here,
        keep_best=config.keep_best,
        patience=config.patience,
    )


def name_of(rho: float) -> str:
    """Returns the name of a training."""
    return "with SAM" if rho else "without SAM"


def summary(
    rho: float, dataset, folder: Path, round_steps: int, start: dict | None = None
) -> dict:
    """Returns what result.json states beside the metrics and the history.

    Args:
        rho: SAM's radius.
        dataset: `kerasvit.data.LabelledImages`.
        folder: Folder of the results.
        round_steps: Steps between validations.
        start: Result of `starting_point.set_head`; None for fresh weights.
    """
    return {
        "training": name_of(rho),
        "rho": rho,
        "folder": str(folder),
        "steps_between_validations": round_steps,
        "test": dataset.test_name,
        "test_is_validation": dataset.test is dataset.validation,
        "images": dataset.counts,
        "start": start,
    }


def save(
    result: dict,
    config,
    model: keras.Model,
    *,
    recipe: str,
    here,
    dataset=None,
) -> dict:
    """Saves model, card, curves and result.json, and deletes the states of training.

    Only the first process writes.

    Args:
        result: Metrics and history of the training, and the result of `summary`.
        config: Dataclass of the settings.
        model: `ImageModel` with the kept weights.
        recipe: Path of the script.
        here: `devices.Devices` of the training.
        dataset: `kerasvit.data.LabelledImages`, for the confusion of the test images;
            None: without.

    Returns:
        The result, with the `license` of the model.
    """
    confused = None
    if dataset is not None:
        options = training_data.batch_options(config, model)
        part = config.batch_size // getattr(config, "accumulate", 1)
        predict = Predictor(here, part, placed=True)
        of = result["test"]
        images, names = dataset.test, dataset.class_names
        confused = confusion.of_model(
            predict, model, images, options["model"], names, of
        )
    model = here.whole(model)
    folder = Path(result["folder"])
    card = facts(config, model, result, recipe)
    base = model.record.get("base") or {}
    result["license"] = card["license"] or base.get("license")
    if not here.is_first:
        return result
    keep = getattr(config, "keep_adapters", False)
    kerasvit.save_pretrained(model, folder / "model", keep_adapters=keep, **card)
    if confused is not None:
        confusion.add_to_card(folder / "model" / "README.md", confused)
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    suffixes = [stage["suffix"] for stage in result.get("stages", [])] or [""]
    for suffix in suffixes:
        name = f"{result['training']} {suffix}".rstrip()
        shutil.rmtree(state_folder(folder, name))
    (folder / "start.npz").unlink(missing_ok=True)
    return result
