"""The table of a measurement: printed, saved, and collected with the others.

results.show(result)        prints and saves it
results.collect()           all that were saved, as Markdown
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
    """A table of one measurement, its numbers as printed.

    Attributes:
        what: The measurement, as in the command.
        title: What was measured and how.
        columns: Names of the columns after the first.
        rows: Name of the contender, then a cell of each column; the last may lack.
        date: Day, as 2026-11-23.
    """

    what: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    date: str

    @classmethod
    def of(cls, config: Config, backend: str, columns, rows):
        """A result of today, with the settings in its title."""
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
    """Prints a result, and saves it for `collect` in place of one of the same title."""
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
    """A Markdown table of each measurement, with the saved results one below another.

    Ends the process where there are none.
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
            lacking = [""] * (len(result.columns) + 1 - len(row))
            rows.append([*first, *row, *lacking])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
