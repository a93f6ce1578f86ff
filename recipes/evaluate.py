"""Scores models on data sets, as the papers do.

    python recipes/evaluate.py runs/digits-jax --on digits       # test images of a run
    python recipes/evaluate.py ViTB16/sam ViTB16/augreg_in1k --on imagenet real v2 r a
    python recipes/evaluate.py runs/pets --on photos/ --images 1000
    python recipes/evaluate.py ViTB16/sam --on cifar100 --frozen few_shot knn probe
    python recipes/evaluate.py ViTB16/augreg_in21k --on vtab --vtab probe
    python recipes/evaluate.py --help

It prints top-1, top-5, negative log-likelihood and calibration error, each with a 95 %
interval, and writes them to `scores/` as text, CSV, Markdown, LaTeX and JSON. The
protocol of each published set is in scoring/SETS.md.
"""

# ruff: noqa: E402
import sys

import command_line
from evaluate_settings import Config


def parse(arguments) -> Config:
    """Returns the configuration of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Config, prog="evaluate.py", description=Config.__doc__
    )


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.start(parse, sys.argv[1:])

from pathlib import Path

import devices
import keras
from benchmarks import results as benchmarks
from progress import console
from scoring import (
    accuracy,
    candidates,
    card,
    cost,
    frozen,
    results,
    sets,
    tables,
    training_sets,
)
from scoring.outputs import Predictor
from scoring.vtab import choice, images, means, transfer


def evaluate(config: Config) -> list[results.Result]:
    """Scores all models on all sets, prints the tables and writes them.

    Raises:
        command_line.BadInput: The input is wrong; raised before anything is computed.
    """
    with command_line.checking_input():
        command_line.check(config)
        here = devices.start(config)
        here.check_batch(config.batch_size)
    with here.together():
        return evaluate_on(here, config)


def evaluate_on(here: devices.Devices, config: Config) -> list[results.Result]:
    """Scores on the devices; otherwise like `evaluate`."""
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(0)  # models begin with equal weights in all processes
    with command_line.checking_input():
        store = results.Store(config.out, here)
        with here.first_goes_first():  # it prepares data sets and downloads weights
            names = [name for name in config.on if not choice.has(name)]
            found = [sets.find(name, here.shard) for name in names]
            of_vtab = [images.find(each) for each in choice.tasks(config.on)]
            models = candidates.load_all(
                config.models,
                config.model_input,
                config.image_size,
                headless=bool(config.frozen) or not names,
            )
        found = [each.sample(config.images) for each in found]
        tasks = accuracy.tasks(models, found, optional=bool(config.frozen))
        if config.frozen:
            tasks += frozen_tasks(here, config, models)
        tasks += transfer.tasks(models, of_vtab, config)
        cards = card.paths(config.models, models, store) if config.card else {}
    predict, scored = Predictor(here, config.batch_size), []
    for task in tasks:
        result = store.find(task)
        if result is None:
            result = task.result(predict)
            store.add(result)
        scored.append(result)
        console.print(tables.line(result), highlight=False, soft_wrap=True)
    speeds = Path(config.speed_from).expanduser()
    measured = benchmarks.saved(speeds)
    costs = {each.name: cost.of(each, measured) for each in models}
    summaries = tables.grid(scored, costs), means.grid(scored)
    for rows in filter(None, summaries):
        console.print(tables.printed(rows))
    if note := cost.missing(models, costs, speeds):
        console.print(note, highlight=False, soft_wrap=True)
    if here.is_first:
        tables.write(scored, summaries, costs, store.folder)
        console.print(f"Tables: {store.folder}.", highlight=False, soft_wrap=True)
        for name, path in cards.items():
            card.write(path, [x for x in scored if x.model == name], costs[name])
            console.print(f"Card: {path}.", highlight=False, soft_wrap=True)
    return scored


def frozen_tasks(here: devices.Devices, config: Config, models) -> list[results.Task]:
    """Returns the tasks of `--frozen`, for the sets that have training images.

    Raises:
        ValueError: None has, or there is no such layer.
    """
    options = config.train_images, config.images, here.shard
    names = [name for name in config.on if not choice.has(name)]
    with here.first_goes_first():
        opened = {name: training_sets.find(name, *options) for name in names}
    if without := [name for name, each in opened.items() if each is None]:
        text = f"{', '.join(without)}: no training images for --frozen."
        if len(without) == len(opened):
            raise ValueError(
                f"`frozen`: {text} Give a set with a split 'train', such as cifar100."
            )
        console.print(text, highlight=False, soft_wrap=True)
    protocol = frozen.Protocol(config.frozen, config.shots, config.seeds, config.layer)
    return frozen.tasks(models, [each for each in opened.values() if each], protocol)


if __name__ == "__main__":
    command_line.main(lambda: evaluate(CONFIG))
