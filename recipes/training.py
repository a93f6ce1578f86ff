"""What `finetune.py` and `pretrain.py` call: everything around `compile` and `fit`.

Every training is cut into rounds of equal steps; after each it is validated and saved,
and the same command continues from there. What users see is counted in steps.
"""

import dataclasses
import json
import logging
import math
import shutil
from pathlib import Path

import folders
import keras
import names
import progress
from batches import AUGMENTATIONS, training_batches
from card_facts import facts
from progress import console, draw_curves, write_json

import kerasvit
from kerasvit.preprocessing.images import input_problem

MOST_ROUNDS, LEAST_ROUND = 50, 10  # rounds of a training, steps of a round

log = logging.getLogger("kerasvit")


def find_variant(config, small: dict) -> kerasvit.Variant | None:
    """The model's builder; sets the precision and the seed that it is built with.

    None where the weights are to say which model they are of.

    Args:
        config: Dataclass of the settings.
        small: Name → models that the zoo does not have.
    """
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(config.seed)
    name = config.model or ("small" if not config.weights else None)
    if name is None:
        return None
    names.check_model(name, small)
    return small.get(name) or getattr(kerasvit, name)


def check_weights(config, small: dict) -> None:
    """Raises a `ValueError` for weights of another model, before images are read.

    Args:
        config, small: As for `find_variant`.
    """
    variant = find_variant(config, small)
    if not config.weights:
        return
    level = log.level
    log.setLevel(logging.ERROR)  # what is logged here is logged again in building
    try:
        if variant:
            variant.preprocessing(config.weights)
        else:
            kerasvit.from_pretrained(config.weights)
    finally:
        log.setLevel(level)


def plan(config, count: int) -> tuple[int, int]:
    """(rounds, steps of each); a round ends with validation and a saved state."""
    steps_per_epoch = max(1, round(count / config.batch_size))
    if config.epochs is None:
        steps = config.steps
    else:
        steps = config.epochs * steps_per_epoch
    # An epoch each; but not hundreds, and none of a few steps, as of 90 images.
    least = max(steps_per_epoch, LEAST_ROUND)
    rounds = min(MOST_ROUNDS, max(1, round(steps / least)))
    round_steps = math.ceil(steps / rounds)
    return math.ceil(steps / round_steps), round_steps


def planned(config, reasons: dict, rounds: int, round_steps: int):
    """The settings with the number of steps and the warm-up that the training has.

    Adds to the reason of `steps` that their number was raised.
    """
    steps = rounds * round_steps
    warmup = min(config.warmup_steps, steps // 5)
    config = dataclasses.replace(config, warmup_steps=warmup)
    if "steps" not in reasons or config.steps == steps:
        return config
    reasons["steps"] += f"; raised to a multiple of {round_steps}"
    return dataclasses.replace(config, steps=steps)


def reading(config, model) -> dict:
    """How images become batches for a model."""
    return {
        "transform": kerasvit.Preprocessing.from_config(model.record["preprocessing"]),
        "normalize": not model.record["kwargs"].get("normalization"),
        "batch_size": config.batch_size,
    }


def check_first_batch(config, model, dataset) -> None:
    """Raises a `ValueError` if the values of images are not what the model takes."""
    options = {**reading(config, model), "batch_size": 8}
    options["augmentation"] = AUGMENTATIONS[config.augment]
    classes = len(dataset.label_names)  # without which labels cannot be mixed
    options |= {"seed": config.seed, "classes": classes}
    images, _ = next(iter(training_batches(dataset.train, **options)))
    transform, built_in = options["transform"], not options["normalize"]
    problem = input_problem(images, transform.mean, transform.std, built_in=built_in)
    if problem:
        raise ValueError(problem)


def claim_folder(config, dataset, prefix: str = "") -> Path:
    """The folder of the results, new or that of the same training before.

    Args:
        config: Dataclass of the settings; `out` is the folder's path, or None.
        dataset: `data.Dataset`.
        prefix: What the folder's name begins with where `out` is None.

    Raises:
        ValueError: As `progress.claim_folder`.
    """
    images = Path(config.data or config.dataset).resolve().name
    folder = config.out or f"runs/{prefix}{images}-{keras.backend.backend()}"
    return progress.claim_folder(folder, config, dataset)


def print_notices(config, dataset) -> None:
    """Prints which files are not read, and whether a batch is too large."""
    if config.data and (others := folders.left_out(Path(config.data).expanduser())):
        console.print(
            f"Not read: {others}. Images of a class folder are read that end in "
            f"{', '.join(sorted(folders.SUFFIXES))}."
        )
    count = len(dataset.train)
    if count < config.batch_size:
        console.print(
            f"A batch of {config.batch_size:,} images is larger than the training set "
            f"of {count:,}: every step uses images more than once. A smaller "
            "--batch-size saves time."
        )


def finished_result(folder: Path) -> dict | None:
    """The content of result.json, which is written last; None where it is not there."""
    finished = folder / "result.json"
    if not finished.exists():
        return None
    console.print(f"{folder} is finished. To train again, delete it.")
    return json.loads(finished.read_text())


def state_folder(folder: Path, name: str) -> Path:
    """Where the state of the training of this name is kept until all are finished."""
    return folder / name.replace(" ", "_")


def best(results: dict) -> str:
    """Name of the training with the best validation accuracy at its end.

    Of equal ones, that with the lower validation loss; of these, the first.
    """

    def score(name):
        last = results[name]["history"][-1]
        return last["val_accuracy"], -last["val_loss"]

    return max(results, key=score)


def summary(
    results: dict, dataset, folder: Path, round_steps: int, start: dict | None = None
) -> dict:
    """What result.json and the card state of the trainings.

    Args:
        results: Name → metrics of the test images, and the history, of each training.
        dataset: `data.Dataset`.
        folder: Of the results.
        round_steps: Steps between validations.
        start: As `starting_point.begin` returns it; None for fresh weights.
    """
    return {
        "results": results,
        "kept": best(results),
        "folder": str(folder),
        "steps_between_validations": round_steps,
        "test": dataset.test_name,
        "test_is_validation": dataset.test is dataset.validation,
        "images": dataset.counts,
        "start": start,
    }


def save(result: dict, config, model: keras.Model, rho: float, recipe: str) -> dict:
    """Saves model, card, curves and result.json, and deletes the states of training.

    Args:
        result: As `summary` returns it.
        config: Dataclass of the settings.
        model: `ImageModel` with the weights that are kept.
        rho: Radius of SAM that the kept weights were trained with.
        recipe: Path of the script.

    Returns:
        The result, with the `license` of the model.
    """
    folder = Path(result["folder"])
    card = facts(config, model, result, rho, recipe)
    base = model.record.get("base") or {}
    result["license"] = card["license"] or base.get("license")
    kerasvit.save_pretrained(model, folder / "model", **card)
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for name in result["results"]:
        shutil.rmtree(state_folder(folder, name))
    (folder / "start.npz").unlink(missing_ok=True)
    return result
