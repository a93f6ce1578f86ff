"""Prints, saves and collects the tables of the measurements.

results.show(result)        prints and saves a table
results.collect(folder)     returns all saved tables as Markdown
results.saved(folder)       returns the saved results
"""

import contextlib
import dataclasses
import datetime
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from devices import device_name
from rich.console import Console
from rich.table import Table

from .settings import Config

FOLDER = Path("runs/benchmarks")
SETTINGS = ("model", "image_size", "batch_size", "dtype", "rounds")


@dataclasses.dataclass(frozen=True)
class Result:
    """A table of one measurement, with formatted numbers.

    Attributes:
        what: Name of the measurement in the command.
        title: Model, measurement and settings.
        columns: Names of the columns after the first.
        rows: Name of the implementation, then one cell per column; the last cells may
            be missing.
        date: Date, such as "2026-11-23".
        about: Settings, backend, device and versions; {} in files of version 0.1.
        seconds: {first cell of a row: seconds per step or batch of each round}.
    """

    what: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    date: str
    about: dict = dataclasses.field(default_factory=dict)
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, backend: str, columns, rows, seconds):
        """Returns a result with the settings in its title and the date of today."""
        steps = [f"{config.image_size} px", f"batch {config.batch_size}", config.dtype]
        model = ", ".join(config.model)
        head, shown = {
            "import": ("import", []),
            "load": (f"{model} load", []),
            "data": ("data", steps[:2]),
            "quantization": (f"{model} quantization", steps[:2]),
            "int8": (f"{model} int8", steps[:2]),
            "simulate": (f"{model} simulate", steps[:1]),
            "serve": (f"{model} serve", steps[:1]),
        }.get(config.what, (f"{model} {config.what}", steps))
        device = device_name.accelerator()
        places = [backend, *([device] if device else [])]
        title = ", ".join([head, *shown, *places, f"{config.rounds} rounds"])
        today = datetime.date.today().isoformat()
        about = {name: getattr(config, name) for name in SETTINGS}
        about["model"] = ", ".join(config.model)
        about |= {"backend": backend, "device": device_name.of_first()}
        packages = [importlib.import_module(x) for x in ("kerasvit", "keras", backend)]
        about["versions"] = {each.__name__: each.__version__ for each in packages}
        return cls(config.what, title, list(columns), rows, today, about, seconds)


def show(result: Result) -> None:
    """Prints and saves a result; replaces a saved one with the same title."""
    table = Table(title=result.title)
    for column in ("", *result.columns):
        table.add_column(column, justify="right" if column else "left")
    for row in result.rows:
        table.add_row(*row)
    Console(width=120, markup=False).print(table)
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{re.sub(r'[^a-zA-Z0-9]+', '-', result.title)}.json"
    file.write_text(json.dumps(dataclasses.asdict(result), indent=1), "utf-8")


def saved(folder: Path) -> list[Result]:
    """Returns the results in a folder; no damaged ones, and none without a folder."""
    found = []
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(ValueError, TypeError):  # no JSON, or other fields
            found.append(Result(**json.loads(file.read_text(encoding="utf-8"))))
    return found


def collect(folder: Path) -> str:
    """Returns a Markdown table per measurement with its saved results.

    Ends the process if there are no results.
    """
    results = saved(folder)
    if not results:
        sys.exit(
            f"There are no results in {folder}. Measure first, with\n"
            "    python -m recipes.benchmarks forward"
        )
    tables = {}
    for result in results:
        tables.setdefault((result.what, *result.columns), []).append(result)
    return "\n".join(_markdown(tables[kind]) for kind in sorted(tables))


def _markdown(results):
    columns = ["date", results[0].what, "", *results[0].columns]
    rows = [columns, ["---"] * len(columns)]
    for result in results:
        for number, row in enumerate(result.rows):
            first = ["", ""] if number else [result.date, result.title]
            missing = [""] * (len(result.columns) + 1 - len(row))
            rows.append([*first, *row, *missing])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
