"""Prints the results of evaluate.py, and writes tables and cards."""

from pathlib import Path

from benchmarks import results as benchmarks
from devices import Devices
from progress import console

from . import card, corruption_tables, cost, kinds, results, robustness, tables
from .planning import Plan
from .vtab import means


def say(text: str) -> None:
    """Prints a line as it is."""
    console.print(text, highlight=False, soft_wrap=True)


def line(result: results.Result) -> str:
    """Returns a line about a result."""
    on_corruption = result.measure in kinds.KINDS
    return (corruption_tables if on_corruption else tables).line(result)


def report(
    here: Devices, config, plan: Plan, found: list[results.Result], folder: Path
) -> list[results.Result]:
    """Prints the tables, and writes them and the cards.

    Args:
        here: Devices; the first process writes.
        config: `evaluate_settings.Config`.
        plan: What was measured.
        found: Results of all tasks.
        folder: Folder of the tables.

    Returns:
        The results, and the means over corruptions.
    """
    names = {
        given: model.name
        for given, model in zip(config.models, plan.models, strict=True)
    }
    summaries = robustness.summarize(found, plan.corrupted, names.get(config.reference))
    means_of_kinds = [each.result() for each in summaries]
    shown = [each for each in found if each.measure not in kinds.KINDS]
    shown += means_of_kinds
    speeds = Path(config.speed_from).expanduser()
    measured = benchmarks.saved(speeds)
    costs = {each.name: cost.of(each, measured) for each in plan.models}
    grids = [rows for rows in (tables.grid(shown, costs), means.grid(shown)) if rows]
    for rows in [*grids, *corruption_tables.compared(summaries)]:
        for table in tables.printed(rows, console.width):
            console.print(table)
    if note := cost.missing(plan.models, costs, speeds):
        say(note)
    if here.is_first:
        tables.write(shown, grids, costs, folder)
        corruption_tables.write(summaries, folder)
        say(f"Tables: {folder}.")
        for name, path in plan.cards.items():
            card.write(path, [x for x in shown if x.model == name], costs[name])
            say(f"Card: {path}.")
    return found + means_of_kinds
