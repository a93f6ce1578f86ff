"""Prints the results of evaluate.py, and writes tables and cards."""

from pathlib import Path

from benchmarks import results as benchmarks
from command.paths import file_name
from devices.devices import Devices
from training.progress import console, counted

from . import (
    card,
    catalogue,
    confusion,
    corruption_tables,
    cost,
    label_table,
    results,
    robustness,
    tables,
)
from .planning import Plan


def say(text: str) -> None:
    """Prints a line as it is."""
    console.print(text, highlight=False, soft_wrap=True)


def line(result: results.Result) -> str:
    """Returns a line about a result."""
    on_corruption = result.measure in catalogue.KINDS
    return (corruption_tables if on_corruption else tables).line(result)


def draw_confusion(
    plan: Plan, found: list[results.Result], folder: Path
) -> dict[str, list[confusion.Confusion]]:
    """Draws the confusion of each model on each set, and says which is most frequent.

    Returns:
        {name of a model: its confusions}.
    """
    confused: dict[str, list[confusion.Confusion]] = {}
    models = {each.name: each for each in plan.models}
    for result in found:
        model = models[result.model]
        each = confusion.of_result(result, model.label_names, model.classes)
        if each is None:
            continue
        confused.setdefault(result.model, []).append(each)
        name = file_name(result.set)
        path = folder / file_name(result.model) / f"{name} confusion.png"
        if each.is_drawn:
            path.parent.mkdir(exist_ok=True)
            each.draw(path)
            say(f"Confusion matrix: {path}.")
        if pairs := each.pairs():
            one, other, count, share = pairs[0]
            say(
                f"{result.model}, {result.set}: most often, {one} is taken for "
                f"{other}: {counted(count)}, {share:.1%} of its class."
            )
    return confused


def report(
    devices: Devices, config, plan: Plan, found: list[results.Result], folder: Path
) -> list[results.Result]:
    """Prints the tables, and writes them and the cards.

    Returns:
        The results, and the means over corruptions.
    """
    names = {
        given: model.name
        for given, model in zip(config.models, plan.models, strict=True)
    }
    summaries = robustness.summarize(found, plan.corrupted, names.get(config.reference))
    means_of_kinds = [each.result() for each in summaries]
    shown = [each for each in found if each.measure not in catalogue.KINDS]
    shown += means_of_kinds
    speeds = Path(config.speed_from).expanduser()
    measured = benchmarks.saved(speeds)
    costs = {each.name: cost.of(each, measured) for each in plan.models}
    grids = [
        rows for rows in (tables.grid(shown, costs), tables.vtab_grid(shown)) if rows
    ]
    for rows in [*grids, *corruption_tables.compared(summaries)]:
        for table in tables.printed(rows, console.width):
            console.print(table)
    if note := cost.missing(plan.models, costs, speeds):
        say(note)
    if devices.is_first:
        tables.write(shown, grids, costs, folder)
        corruption_tables.write(summaries, folder)
        say(f"Tables: {folder}.")
        confused = draw_confusion(plan, shown, folder)
        models = {each.name: each for each in plan.models}
        for name, path in plan.cards.items():
            card.write(path, [x for x in shown if x.model == name], costs[name])
            for each in confused.get(name, ()):
                confusion.add_to_card(path, each)
            names = models[name].label_names
            for each in (x for x in shown if x.model == name):
                if table := label_table.of_result(each, names):
                    label_table.add_to_card(path, table)
            say(f"Card: {path}.")
    return found + means_of_kinds
