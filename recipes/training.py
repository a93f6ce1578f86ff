"""What `finetune.py` and `pretrain.py` share: a training that can be stopped.

Every training is cut into rounds of equal steps; after each it is validated and saved,
and the same command continues from there. What users see is counted in steps.
"""

import dataclasses
import inspect
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import data
import folders
import keras
import names
import starting_point
from batches import AUGMENTATIONS, evaluation_batches, training_batches
from card_facts import facts
from command_line import check, checking_input
from progress import Progress, Steps, claim_folder, console, draw_curves, write_json

import kerasvit
from kerasvit.preprocessing.images import input_problem

MOST_ROUNDS, LEAST_ROUND = 50, 10  # rounds of a training, steps of a round

log = logging.getLogger("kerasvit")


class Prepared(NamedTuple):
    """A training that can begin.

    Attributes:
        config: Dataclass of the settings, with nothing left open.
        model: `ImageModel` at its start.
        dataset: `data.Dataset`.
        folder: Path of the results.
        reasons: Setting → why it has its value, of those that depend on the task.
        rounds, round_steps: As `plan` returns them.
    """

    config: object
    model: keras.Model
    dataset: data.Dataset
    folder: Path
    reasons: dict
    rounds: int
    round_steps: int


def prepare(
    config, build: Callable, small: dict, name: str = "", resolve: Callable = None
) -> Prepared:
    """Model, data and folder, once all that can be wrong with them has been tried.

    Args:
        config: Dataclass of the settings.
        build: Makes the model of the configuration and the names of the classes.
        small: Name → models that the zoo does not have.
        name: What the folder's name begins with, where the user gives none.
        resolve: Fills in what depends on data and model, as `defaults.resolve`.

    Raises:
        BadInput: Something is wrong.
    """
    reasons = {}
    with checking_input():
        check(config)
        check_weights(config, chosen(config, small))
        dataset = data.find(config.dataset, config.data)
        model = build(config, dataset.label_names)
        count = len(dataset.train)
        if resolve:
            config, reasons = resolve(config, count, dataset.kind, model)
        rounds, round_steps = plan(config, count)
        config = planned(config, reasons, rounds, round_steps)
        if config.model is None:
            config = dataclasses.replace(
                config, model=model.record["variant"] or model.name
            )
        check_first_batch(config, model, dataset)
        images = Path(config.data or config.dataset).resolve().name
        folder = config.out or f"runs/{name}{images}-{keras.backend.backend()}"
        folder = claim_folder(folder, config, dataset)
    if config.data and (others := folders.left_out(Path(config.data).expanduser())):
        console.print(
            f"Not read: {others}. Images of a class folder are read that end in "
            f"{', '.join(sorted(folders.SUFFIXES))}."
        )
    if count < config.batch_size:
        console.print(
            f"A batch of {config.batch_size:,} images is larger than the training set "
            f"of {count:,}: every step uses images more than once. A smaller "
            "--batch-size saves time."
        )
    return Prepared(config, model, dataset, folder, reasons, rounds, round_steps)


def planned(config, reasons, rounds, round_steps):
    """The settings as the training has them; adds to the reasons what has changed."""
    steps = rounds * round_steps
    warmup = min(config.warmup_steps, steps // 5)
    config = dataclasses.replace(config, warmup_steps=warmup)
    if "steps" not in reasons or config.steps == steps:
        return config
    reasons["steps"] += f"; raised to a multiple of {round_steps}"
    return dataclasses.replace(config, steps=steps)


def run(prepared: Prepared, radii: dict, compiled: Callable, *, one_hot=False) -> dict:
    """Trains with each radius, or continues where it was stopped; saves the results.

    Of several trainings the model with the best validation accuracy is kept; of equal
    ones, that with the lower validation loss.

    Args:
        prepared: What `prepare` returned.
        radii: Name of a training → rho of SAM. All begin at the same weights.
        compiled: Makes the compiled trainer of (config, model, rho, steps).
        one_hot: Whether labels are rows of a number a class.
    """
    config, model, dataset, folder, reasons, rounds, round_steps = prepared
    if (finished := folder / "result.json").exists():
        console.print(f"{folder} is finished. To train again, delete it.")
        return json.loads(finished.read_text())
    options = reading(config, model)
    if reasons:
        starting_point.show_settings(config, reasons)
    begun = None
    if getattr(config, "weights", None):
        begun = starting_point.begin(model, dataset, options, config, folder)
    if one_hot:
        options["classes"] = len(dataset.label_names)
    start = model.get_weights()
    results, kept, best = {}, None, None
    for name, rho in radii.items():
        model.set_weights(start)
        trainer = compiled(config, model, rho, rounds * round_steps)
        progress = Progress(folder / name.replace(" ", "_"), config.seed)
        results[name] = _train(prepared, trainer, progress, options)
        if kept is None or _score(results[name]) > _score(results[kept]):
            kept, best = name, model.get_weights() if len(radii) > 1 else None
    if best:
        model.set_weights(best)
    result = {
        "results": results,
        "kept": kept,
        "folder": str(folder),
        "steps_between_validations": round_steps,
        "test": dataset.test_name,
        "test_is_validation": dataset.test is dataset.validation,
        "images": dataset.counts,
        "start": begun,
    }
    said = facts(config, model, result, radii[kept], inspect.getfile(compiled))
    base = model.record.get("base") or {}
    result["license"] = said["license"] or base.get("license")
    kerasvit.save_pretrained(model, folder / "model", **said)
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for name in radii:
        shutil.rmtree(folder / name.replace(" ", "_"))
    (folder / "start.npz").unlink(missing_ok=True)
    return result


def _score(training):
    """What is better is greater: validation accuracy, then a low loss."""
    last = training["history"][-1]
    return last["val_accuracy"], -last["val_loss"]


def _train(prepared, trainer, progress, options):
    """Metrics of the test images, and the history."""
    config, dataset = prepared.config, prepared.dataset
    rounds, round_steps = prepared.rounds, prepared.round_steps
    done = progress.restore(trainer)
    name = progress.folder.name.replace("_", " ")
    with Steps(name, done, rounds, round_steps) as steps:
        if done < rounds:
            trainer.fit(
                training_batches(
                    dataset.train,
                    seed=config.seed,
                    start=done * round_steps,
                    augmentation=AUGMENTATIONS[config.augment],
                    **options,
                ),
                initial_epoch=done,
                epochs=rounds,
                steps_per_epoch=round_steps,
                shuffle=False,  # that is done
                validation_data=evaluation_batches(dataset.validation, **options),
                callbacks=[progress, steps],
                verbose=0,  # Keras calls a round an epoch, which it is not
            )
    test = evaluation_batches(dataset.test, **options)
    return {
        **trainer.evaluate(test, verbose=0, return_dict=True),
        "history": progress.history,
    }


def chosen(config, small: dict) -> kerasvit.Variant:
    """The row of the model's name, once precision and seed are set for building it.

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


def check_weights(config, variant) -> None:
    """Raises a `ValueError` for weights of another model, before images are read."""
    if getattr(config, "weights", None):
        level = log.level
        log.setLevel(logging.ERROR)  # what is logged here is logged again in building
        try:
            if variant:
                variant.preprocessing(config.weights)
            else:
                kerasvit.from_pretrained(config.weights)
        finally:
            log.setLevel(level)


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
