"""Looks inside one or two models: sharpness, attention, features, on one page.

    python recipes/inspection.py runs/plain runs/sam --data digits
    python recipes/inspection.py ViTB16/sam --data photos/ --budget 10m
    python recipes/inspection.py runs/sam --data digits --only eigenvalues attention
    python recipes/inspection.py --help

It writes `inspected/inspection.html`, one file that needs no other, and all numbers as
`inspection.json` and rows of tables as `inspection.tex` beside it. Two models have the
same images, axes and colour scales. Stopped, the same command goes on; measures that
are stored of the same weights and images are not made again.
"""

# ruff: noqa: E402
import os
import sys

from command import command_line, folder_lock
from reporting.settings import Config


def parse(arguments) -> Config:
    """Returns the configuration of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Config, prog="inspection.py", description=Config.__doc__
    )


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.start(parse, sys.argv[1:])

import contextlib
import dataclasses
import importlib.metadata
import shlex
from pathlib import Path

import keras
from reporting import measures, page, subjects
from reporting.measures import Budget, Store, duration
from training.progress import console

from kerasvit import __version__


def inspect(config: Config) -> dict:
    """Measures the models, writes the report, and returns what is in its JSON.

    Raises:
        command_line.BadInput: The input is wrong; raised before anything is measured.
    """
    with command_line.checking_input():
        command_line.check(config)
        keras.config.set_dtype_policy("float32")
        keras.utils.set_random_seed(config.seed)
    with contextlib.ExitStack() as held:
        with command_line.checking_input():
            held.enter_context(folder_lock.locked(Path(os.path.expanduser(config.out))))
            store = Store(config.out)
            found = subjects.load(config)
        return measure(config, store, found)


def measure(config: Config, store: Store, found: list[subjects.Subject]) -> dict:
    """Measures the models, and writes the report."""
    report = {
        "data": config.image_set,
        "images": len(found[0].x),
        "models": [each.facts() for each in found],
        "settings": {"seed": config.seed, "batch_size": config.batch_size},
        "versions": versions(),
        "command": command(config),
        "measures": {},
    }
    budget = Budget(config.seconds)
    for name in measures.chosen(config.only, found):
        each = measures.measured(name, found, store, budget)
        report["measures"][name] = each
        console.print(line(name, each), highlight=False, soft_wrap=True)
    page.write(report, store.folder)
    path = store.folder / "inspection.html"
    console.print(f"Report: {path}.", highlight=False, soft_wrap=True)
    return page.described(report)


def line(name: str, found: dict) -> str:
    """Returns a line about a measure that was made, found or left out."""
    parts = [
        f"{label}: {each.get('reason', '').rstrip('.') or duration(each['seconds'])}"
        for label, each in found.items()
    ]
    return f"{name}: {'; '.join(parts)}."


def versions() -> dict[str, str]:
    """Returns the versions of the software."""
    found = {name: importlib.metadata.version(name) for name in ("keras", "numpy")}
    backend = keras.backend.backend()
    return found | {
        "kerasvit": __version__,
        "backend": f"{backend} {importlib.metadata.version(backend)}",
    }


def command(config: Config) -> str:
    """Returns the command that makes the same report."""
    options = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in ("models", "out") and value != field.default:
            name = "data" if field.name == "image_set" else field.name
            values = value if isinstance(value, tuple) else (value,)
            options += [f"--{name.replace('_', '-')}", *map(str, values)]
    return shlex.join(["python", "recipes/inspection.py", *config.models, *options])


if __name__ == "__main__":
    command_line.main(lambda: inspect(CONFIG))
