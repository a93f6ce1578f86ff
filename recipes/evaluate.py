"""Scores models on data sets, as the papers do.

    python recipes/evaluate.py runs/digits-jax/sam --on digits   # test images of a run
    python recipes/evaluate.py ViTB16/sam ViTB16/augreg_in1k --on imagenet real v2 r a
    python recipes/evaluate.py runs/pets --on photos/ --images 1000
    python recipes/evaluate.py ViTB16/sam --on cifar100 --frozen few_shot knn probe
    python recipes/evaluate.py runs/plain runs/sam --on photos/ --corrupt all
    python recipes/evaluate.py ViTB16/augreg_in21k --on vtab --vtab probe
    python recipes/evaluate.py runs/pets --on photos/ --trust --coverage 0.9
    python recipes/evaluate.py --help

It prints top-1, top-5, negative log-likelihood and calibration error, each with a 95 %
interval, and writes them to `scores/` as text, CSV, Markdown, LaTeX and JSON. The
protocol of each published set is in scoring/SETS.md.
"""

# ruff: noqa: E402
import os
import sys
from pathlib import Path

from command import command_line, folder_lock
from scoring.settings import Config


def parse(arguments) -> Config:
    """Returns the configuration of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Config, prog="evaluate.py", description=Config.__doc__
    )


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.start(parse, sys.argv[1:])

import keras
from devices.devices import Devices, start_devices
from scoring import planning, reports, results
from scoring.outputs import Predictor


def evaluate(config: Config) -> list[results.Result]:
    """Scores all models on all sets, prints the tables and writes them.

    Raises:
        command_line.BadInput: The input is wrong; raised before anything is computed.
    """
    with command_line.checking_input():
        command_line.check(config)
        devices = start_devices(config)
        devices.check_batch(config.batch_size)
    with devices.together():
        return evaluate_on(devices, config)


def evaluate_on(devices: Devices, config: Config) -> list[results.Result]:
    """Scores on the devices; otherwise like `evaluate`."""
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(0)  # models begin with equal weights in all processes
    # Several commands may score other pairs into the same folder at the same time.
    with folder_lock.explained_disk(Path(os.path.expanduser(config.out))):
        with command_line.checking_input():
            store = results.Store(config.out, devices)
            plan = planning.plan(devices, config, store)
        for note in plan.notes:
            reports.say(note)
        predict = Predictor(devices, config.batch_size)

        def results_of(tasks):
            found = []
            for task in tasks:
                result = store.find(task)
                if result is None:
                    result = task.result(predict)
                    store.add(result)
                found.append(result)
                reports.say(reports.line(result))
            return found

        trusted = results_of(plan.trust)
        reports.store_trust(devices, config, plan, trusted, store.folder)
        scored = [*results_of(plan.of_sets()), *results_of(plan.tasks), *trusted]
        return reports.report(devices, config, plan, scored, store.folder)


if __name__ == "__main__":
    command_line.main(lambda: evaluate(CONFIG))
