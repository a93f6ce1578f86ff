"""What `finetune.py` and `pretrain.py` share: checked settings, and a training.

A training can be stopped: the same command goes on from its last round.
"""

import dataclasses
import difflib
import inspect
import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import data
import keras
import tyro
from batches import AUGMENTATIONS, evaluation_batches, training_batches
from progress import Progress, claim_folder, console, draw_curves, write_json

import kerasvit
from kerasvit.images import input_problem

LIMITS = {  # where a configuration has such a number
    "batch_size": (1, math.inf),
    "learning_rate": (1e-12, math.inf),
    "warmup_steps": (0, math.inf),
    "steps": (1, math.inf),
    "epochs": (1, math.inf),
    "weight_decay": (0, math.inf),
    "clip": (0, math.inf),
    "rho": (0, math.inf),
    "micro_batches": (1, math.inf),
    "label_smoothing": (0, 0.99),
    "dropout": (0, 0.99),
    "stochastic_depth": (0, 0.99),
    "seeds": (1, 100),
    "curved_images": (1, math.inf),
    "seed": (0, 2**31 - 1),
}


class BadInput(ValueError):
    """Something is wrong with what the user gave."""


def prepare(config, build: Callable, name: str = ""):
    """Model, data and folder, once all that can be wrong with them has been tried.

    Args:
        config: Dataclass of the settings.
        build: Makes the model of the configuration and the names of the classes.
        name: What the folder's name begins with, where the user gives none.

    Raises:
        BadInput: Something is wrong.
    """
    try:
        check(config)
        dataset = data.find(config.dataset, config.data)
        model = build(config, dataset.label_names)
        check_first_batch(config, model, dataset)
        images = Path(config.data or config.dataset).resolve().name
        folder = config.out or f"runs/{name}{images}-{keras.backend.backend()}"
        return model, dataset, claim_folder(folder, config, dataset)
    except ValueError as error:
        raise BadInput(str(error)) from error


def run(config, prepared, radii: dict, compiled: Callable, *, one_hot=False) -> dict:
    """Trains with each radius, or goes on where it was stopped; leaves the results.

    Args:
        config: Dataclass of the settings.
        prepared: What `prepare` returned.
        radii: Name of a training → rho of SAM. All begin at the same weights.
        compiled: Makes the compiled trainer of (config, model, rho, steps).
        one_hot: Whether labels are rows of a number a class.
    """
    model, dataset, folder = prepared
    if (finished := folder / "result.json").exists():
        console.print(f"{folder} is finished. To train afresh, delete it.")
        return json.loads(finished.read_text())
    options = reading(config, model)
    if one_hot:
        options["classes"] = len(dataset.label_names)
    rounds, round_steps = plan(config, len(dataset.train))
    start = model.get_weights()
    results = {}
    for name, rho in radii.items():
        model.set_weights(start)
        trainer = compiled(config, model, rho, rounds * round_steps)
        progress = Progress(folder / name.replace(" ", "_"), config.seed)
        results[name] = _train(config, trainer, dataset, progress, options)

    kerasvit.save_pretrained(model, folder / "model", **facts(config, radii, results))
    result = {
        "results": results,
        "folder": str(folder),
        "round_steps": round_steps,
        "test": dataset.test_name,
        "images": dataset.counts,
    }
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for name in radii:
        shutil.rmtree(folder / name.replace(" ", "_"))
    return result


def _train(config, trainer, dataset, progress, options):
    """What the test says, and the history."""
    rounds, round_steps = plan(config, len(dataset.train))
    done = progress.restore(trainer)
    name = progress.folder.name.replace("_", " ")
    console.rule(f"{name}, rounds {done} to {rounds} of {round_steps} steps")
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
            callbacks=[progress],
        )
    test = evaluation_batches(dataset.test, **options)
    return {
        **trainer.evaluate(test, verbose=0, return_dict=True),
        "history": progress.history,
    }


def facts(config, radii, results) -> dict:
    """What the card of the saved model, that of the last training, says of it."""
    name, rho = list(radii.items())[-1]
    settings = dataclasses.asdict(config)
    for own in ("out", "compare", "rho"):  # of the run, not of the model
        settings.pop(own, None)
    for place in ("data", "weights"):  # paths are the user's own
        if settings.get(place) and Path(settings[place]).exists():
            settings[place] = Path(settings[place]).name
    recipe = f"recipes/{Path(inspect.getfile(type(config))).name}"
    method = f"SAM, rho {rho:g}" if rho else "without SAM"
    said = {key: value for key, value in settings.items() if value is not None}
    return {
        "metrics": {"accuracy": results[name]["accuracy"]},
        "training": {"method": method, "recipe": recipe, **said},
    }


def check(config) -> None:
    """Raises a `ValueError` for a number out of its range."""
    for name, (low, high) in LIMITS.items():
        value = getattr(config, name, None)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            most = f" and at most {high}" if high < math.inf else ""
            raise ValueError(
                f"`{name}` must be at least {low}{most}. Received: {value}."
            )


def chosen(config, small: dict) -> kerasvit.Variant:
    """The row of the model's name, once precision and seed are set for building it.

    Args:
        config: Dataclass of the settings.
        small: Name → models that the zoo does not have.
    """
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(config.seed)
    data.check_name("model", config.model, [*small, *kerasvit.list_models()])
    return small.get(config.model) or getattr(kerasvit, config.model)


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
    # An epoch each; but not hundreds, as for flowers, whose epoch is two steps.
    rounds = min(50, max(1, round(steps / steps_per_epoch)))
    round_steps = math.ceil(steps / rounds)
    return math.ceil(steps / round_steps), round_steps


def parse(arguments: Sequence[str], presets: dict, script: str):
    """The configuration: that of a preset, with what the options change.

    Args:
        arguments: Of the command line: maybe a preset's name, then options.
        presets: Name → configuration; the first is taken where none is named.
        script: What messages call the program.
    """
    preset, options = next(iter(presets)), list(arguments)
    if options and not options[0].startswith("-"):
        preset = options.pop(0)
        if preset not in presets:
            near = difflib.get_close_matches(preset, presets) or presets
            raise BadInput(f"There is no preset {preset!r}. Close: {', '.join(near)}.")
    default = presets[preset]
    return tyro.cli(
        type(default),
        default=default,
        args=options,
        prog=f"{script} [PRESET]",
        description=f"{type(default).__doc__} Presets: {', '.join(presets)}.",
    )


def main(work: Callable) -> None:
    """Runs a recipe from the command line: errors of the user's are a line."""
    try:
        work()
    except BadInput as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The same command goes on from the last round.")
