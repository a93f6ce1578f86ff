"""Table of the tasks of VTAB-1k, with the means of its groups and of all.

The score of VTAB is the mean of top-1 over the tasks: Zhai et al. 2019, arXiv
1910.04867, section 2.
"""

import numpy as np

from ..results import Result
from ..tables import top1, top1_difference
from .catalogue import GROUPS, NAME, TASKS


def grid(results: list[Result]) -> list[list[str]]:
    """Returns the rows of the table: a task per row, a model per column; [] for none.

    Columns of later models are followed by the differences from the first. The number
    of the tasks of a mean is stated.

    Args:
        results: Results, also of other sets; those of VTAB of all models.
    """
    found = {(each.model, each.set): each for each in results if each.set in TASKS}
    if not found:
        return []
    models = list(dict.fromkeys(model for model, _ in found))
    measure = next(iter(found.values())).measure
    heading = [f"VTAB-1k, {measure}, top-1 in %", models[0]]
    for model in models[1:]:
        heading += [model, f"minus {models[0]}"]
    rows = [heading]
    present = [name for name in TASKS if (models[0], name) in found]
    for name in present:
        first = found[models[0], name]
        row = [TASKS[name].name, top1(first, measure)]
        for model in models[1:]:
            other = found[model, name]
            row += [top1(other, measure), top1_difference(first, other, measure)]
        rows.append(row)
    for group, names in {**GROUPS, NAME: list(TASKS)}.items():
        own = [name for name in names if name in present]
        if own:
            means = [mean([found[model, name] for name in own]) for model in models]
            rows.append([_title(group, names, own), *_cells(means)])
    return rows


def mean(results: list[Result]) -> float:
    """Returns the mean of top-1, in %."""
    parts = [each.parts[each.measure] for each in results]
    return 100 * float(np.mean([part.scores["top1"].value for part in parts]))


def _title(group, names, present):
    """Returns "mean of vtab, 17 of 19 tasks, without sun397, resisc45"."""
    text = f"mean of {group}, {len(present)} of {len(names)} tasks"
    others = [TASKS[name].name for name in names if name not in present]
    few = 0 < len(others) < len(present)
    return f"{text}, without {', '.join(others)}" if few else text


def _cells(means):
    first, *others = means
    cells = [f"{first:.2f}"]
    for other in others:
        cells += [f"{other:.2f}", f"{other - first:+.2f}"]
    return cells
