"""Prints, saves and collects the tables of the measurements.

results.show(result)        prints and saves a table
results.collect()           returns all saved tables as Markdown
"""

import dataclasses
import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .settings import Config

FOLDER = Path("runs/benchmarks")


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
    """

    what: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    date: str

    @classmethod
    def of(cls, config: Config, backend: str, columns, rows):
        """Returns a result with the settings in its title and the date of today."""
        steps = [f"{config.image_size} px", f"batch {config.batch_size}", config.dtype]
        head, shown = {
            "import": ("import", []),
            "load": (f"{config.model} load", []),
            "data": ("data", steps[:2]),
        }.get(config.what, (f"{config.model} {config.what}", steps))
        title = ", ".join([head, *shown, backend, f"{config.rounds} rounds"])
        today = datetime.date.today().isoformat()
        return cls(config.what, title, list(columns), rows, today)


def show(result: Result) -> None:
    """Prints and saves a result; replaces a saved one with the same title."""
    table = Table(title=result.title)
    for column in ("", *result.columns):
        table.add_column(column, justify="right" if column else "left")
    for row in result.rows:
        table.add_row(*row)
    Console(width=100).print(table)
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{re.sub(r'[^a-zA-Z0-9]+', '-', result.title)}.json"
    file.write_text(json.dumps(dataclasses.asdict(result), indent=1))


def collect() -> str:
    """Returns a Markdown table per measurement with its saved results.

    Ends the process if there are no results.
    """
    files = sorted(FOLDER.glob("*.json"))
    if not files:
        sys.exit(
            f"There are no results in {FOLDER}. Measure first, with\n"
            "    python -m recipes.benchmarks forward"
        )
    results = [Result(**json.loads(file.read_text())) for file in files]
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
