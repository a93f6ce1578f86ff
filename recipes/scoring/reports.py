"""Prints the results of evaluate.py, and writes tables and cards."""

import os
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
    trust,
    trust_report,
)
from .planning import Plan


def say(text: str) -> None:
    """Prints a line as it is."""
    console.print(text, highlight=False, soft_wrap=True)


def line(result: results.Result) -> str:
    """Returns a line about a result."""
    if result.measure == trust.MEASURE:
        return trust_report.line(result)
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
    models = {each.name: each for each in plan.scored}
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


def store_trust(devices: Devices, config, plan: Plan, trusted, folder: Path) -> None:
    """Draws trust, and stores calibrations in the models' folders, and in the models.

    Args:
        trusted: Results of --trust; of several sets the first gives the calibration.
    """
    for result in trusted if devices.is_first else ():
        path = folder / file_name(result.model) / f"{file_name(result.set)} trust.png"
        path.parent.mkdir(exist_ok=True)
        trust_report.draw(result, path)
        say(f"Reliability and coverage: {path}.")
    for given, model in zip(config.models, plan.models, strict=True):
        first = next((x for x in trusted if x.model == model.name), None)
        if first is None:
            continue
        if devices.is_first:
            say(trust_report.store(first, given, config))
        if trust_report.is_stored(given, config):
            model.model.record["calibration"] = first.calibration


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
    trusted = [each for each in found if each.measure == trust.MEASURE]
    others = (*catalogue.KINDS, trust.MEASURE)
    shown = [each for each in found if each.measure not in others] + means_of_kinds
    speeds = Path(os.path.expanduser(config.speed_from))
    measured = benchmarks.saved(speeds)
    costs = {each.name: cost.of(each, measured) for each in plan.models}
    for each in plan.scored[len(plan.models) :]:
        costs[each.name] = cost.of_all([*costs.values()])
    grids = [
        rows for rows in (tables.grid(shown, costs), tables.vtab_grid(shown)) if rows
    ]
    of_trust = map(trust_report.grid, trust_report.by_set(trusted))
    for rows in [*grids, *corruption_tables.compared(summaries), *of_trust]:
        for table in tables.printed(rows, console.width):
            console.print(table)
    _name_missing(plan, shown)
    if note := cost.missing(plan.models, costs, speeds):
        say(note)
    if devices.is_first:
        tables.write(shown, grids, costs, folder)
        corruption_tables.write(summaries, folder)
        if trusted:
            trust_report.write(trusted, folder)
        say(f"Tables: {folder}.")
        confused = draw_confusion(plan, shown, folder)
        for model in plan.models if plan.cards else ():
            path = plan.cards[model.name]
            own = [each for each in shown if each.model == model.name]
            card.write(path, own, costs[model.name])
            for each in confused.get(model.name, ()):
                confusion.add_to_card(path, each)
            for each in own:
                if table := label_table.of_result(each, model.label_names):
                    label_table.add_to_card(path, table)
            for each in trusted:
                if each.model == model.name:
                    trust_report.add_to_card(path, each)
            say(f"Card: {path}.")
    return found + means_of_kinds


def _name_missing(plan, shown):
    """Says which classes no image of a set with several labels has."""
    names = {each.name: each.label_names for each in plan.scored}
    for each in shown:
        table = label_table.of_result(each, names[each.model])
        if table and table.missing:
            missing = ", ".join(table.missing)
            say(f"No image of {each.set} has {missing}: left out of the mAP.")
