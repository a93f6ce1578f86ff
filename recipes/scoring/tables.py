"""Prints and writes the results: text, CSV, Markdown, LaTeX and JSON."""

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table
from training.progress import counted
from training.run_folder import replace_file, write_json

from kerasvit.evaluation import Estimate

from . import catalogue, cost
from .estimates import resampled
from .label_table import LABELS, OUTPUTS, of_outputs
from .results import LABEL_METRICS, METRICS, Result, difference
from .vtab import catalogue as vtab

OF_TRUST = ("coverage", "answered", "aurc", "auroc", "fpr95", "precision", "recall")
PERCENT = ("top1", "top5", "ece", *LABEL_METRICS, *OF_TRUST)
NAMES = {"top1": "top-1", "map": "mAP"}
FRAME = 3  # characters around a cell of a printed table
SHORT = 12  # characters of a heading that is not broken


def metrics_of(results: Iterable[Result]) -> tuple[str, ...]:
    """Returns the names of the numbers of models of one label, or of several."""
    parts = [part for each in results for part in each.parts.values()]
    several = any("map" in part.scores for part in parts)
    return LABEL_METRICS if several else METRICS


def line(result: Result) -> str:
    """Returns a line about a result that was computed or found."""
    own = "all", "restricted", result.measure
    numbers = [
        f"{name} {cell(metric, each)}"
        for part, (_, scores) in result.parts.items()
        for metric, each in scores.items()
        for name in [metric if part in own else f"{part} {metric}"]
        if part != "restricted" and not metric.startswith("seed ")
    ]
    head = ", ".join(filter(None, [result.model, result.set, result.measure]))
    text = f"{head}, {counted(result.images)}: {', '.join(numbers)}"
    if result.left_out:
        text += f". {counted(result.left_out)} without a class of the model left out"
    if result.unmatched:
        names = ", ".join(result.unmatched[:5])
        more = len(result.unmatched) - 5
        names += f" and {more} more classes" if more > 0 else ""
        text += f" ({names})" if result.left_out else f". Not of the model: {names}"
    return f"{text}."


def heading(result: Result, part: str) -> str:
    """Returns the heading of the column of a part."""
    if part == "all":
        return result.set
    if part == "restricted":
        return f"{result.set}, {result.parts[part].classes} classes"
    return f"{result.set}, {part}"


def grid(results: list[Result], costs: dict[str, cost.Cost]) -> list[list[str]]:
    """Returns the rows of the table of top-1: a model per row, a set per column.

    Below a model are the paper's numbers, if its name has some, and the differences
    from the first model, with 95 % intervals. The tasks of VTAB are in `vtab_grid`.
    """
    results = [each for each in results if each.set not in vtab.TASKS]
    main = metrics_of(results)[0]
    columns = {  # {(set, measure, part): heading}
        (each.set, each.measure, part): heading(each, part)
        for each in results
        for part, (_, scores) in each.parts.items()
        if main in scores
    }
    # In the order of the command: the first may have no result on the first set.
    models = [name for name in costs if any(x.model == name for x in results)]
    by_place = {(each.model, each.set, each.measure): each for each in results}
    if not columns:
        return []
    rows = [[f"{NAMES[main]} in %", *columns.values()]]
    for model in models:
        found = [by_place.get((model, *column[:2])) for column in columns]
        wanted = list(zip(found, columns, strict=True))
        cells = (top1(each, part, main) for each, (*_, part) in wanted)
        rows.append([model, *cells])
        if numbers := catalogue.RESULTS.get(model):
            known = [
                numbers.get(catalogue.published_column(x), "") for x in columns.values()
            ]
            rows.append([f"  {catalogue.PAPER}", *map(str, known)])
        if model != models[0]:
            first = [by_place.get((models[0], *column[:2])) for column in columns]
            cells = [
                top1_difference(one, other, part)
                for one, (other, (*_, part)) in zip(first, wanted, strict=True)
            ]
            rows.append([f"  minus {models[0]}", *cells])
    return cost.inserted(rows, costs)


def details(results: list[Result]) -> list[list[str]]:
    """Returns the rows of the table of all numbers: a model and a part per row."""
    metrics = metrics_of(results)
    rows = [["model", "set", "classes", "images", *metrics, "seconds"]]
    for each in results:
        for part, (classes, scores) in each.parts.items():
            cells = [cell(name, scores.get(name)) for name in metrics]
            name = heading(each, "all" if part == "restricted" else part)
            first = [each.model, name, f"{classes:,}", f"{each.images:,}"]
            rows.append([*first, *cells, f"{each.seconds:.0f}"])
    return rows


def printed(rows: list[list[str]], width: int) -> list[Table]:
    """Returns tables for the console; the first row is the heading.

    A table that would be wider is turned: its columns become rows. If it is still
    wider, it is divided: each table has the first column, and as many others as fit.
    Numbers stay whole, headings are broken between words.
    """
    widest = (max(map(len, column)) for column in zip(*rows, strict=True))
    if sum(each + FRAME for each in widest) > width and len(rows[0]) > len(rows):
        rows = [list(column) for column in zip(*rows, strict=True)]
    columns = [(column, _width(column)) for column in zip(*rows, strict=True)]
    (first, least), *others = columns
    if sum(needed + FRAME for _, needed in columns) >= width:
        least = min(least, width // 3)
    groups, free = [], 0
    for column, needed in others:
        if needed + FRAME > free:
            groups.append([(first, least)])
            free = width - 1 - least - FRAME
        groups[-1].append((column, needed))
        free -= needed + FRAME
    return list(map(_table, groups))


def _width(column):
    """Returns the characters of the longest cell, or of what stays whole above it."""
    heading, *cells = column
    words = heading.split() if len(heading) > SHORT else [heading]
    return max(map(len, [*words, *cells]))


def _table(columns):
    table = Table()
    for i, ((name, *_), width) in enumerate(columns):
        table.add_column(name.strip(), justify="right" if i else "left", width=width)
    for row in zip(*(cells for (_, *cells), _ in columns), strict=True):
        table.add_row(*row)
    return table


def write(
    results: list[Result],
    summaries: Sequence[list[list[str]]],
    costs: dict[str, cost.Cost],
    folder: Path,
) -> None:
    """Writes scores.txt, .csv, .md, .tex and .json into the folder."""
    content = [
        each.to_json() | {"cost": dataclasses.asdict(costs[each.model])}
        for each in results
    ]
    tables = [*summaries, details(results)]
    write_files(folder, "scores", tables, _numbers(results, costs), content)


def write_files(
    folder: Path, name: str, tables: list, numbers: Iterable, content
) -> None:
    """Writes tables as text, Markdown and LaTeX, and numbers as CSV and JSON.

    The first row of a table is its heading. `numbers` are the rows of the CSV, and
    `content` is that of the JSON.
    """
    csv.writer(values := io.StringIO(), lineterminator="\n").writerows(numbers)
    texts = {
        "txt": "\n\n".join(map(_aligned, tables)),
        "md": "\n\n".join(map(markdown, tables)),
        "tex": "\n\n".join(map(_latex, tables)),
        "csv": values.getvalue(),
    }
    for ending, text in texts.items():
        unfinished = folder / f".{name}.{ending}"
        unfinished.write_text(f"{text.rstrip()}\n", encoding="utf-8")
        replace_file(unfinished, folder / f"{name}.{ending}")
    write_json(folder / f"{name}.json", content)


def cell(name: str, score) -> str:
    """Returns "78.30 [77.9, 78.7]", in % for shares; "" for None."""
    if score is None:
        return ""
    value, low, high = score
    if name in PERCENT:
        return f"{100 * value:.2f} [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def top1(result: Result | None, part: str, main: str = "top1") -> str:
    """Returns top-1, or another number, of a part with its interval; "" for None."""
    if result is None or part not in result.parts:
        return ""
    return cell(main, result.parts[part].scores.get(main))


def top1_difference(one: Result | None, other: Result | None, part: str) -> str:
    """Returns by how much top-1 of the second is larger; "" if it is not known."""
    if not one or not other:
        return ""
    if OUTPUTS in one.right:
        found = map_difference(one, other)
    else:
        found = difference(one, other, part)
    if not found:
        return ""
    value, low, high = (100 * each for each in found)
    return f"{value:+.2f} [{low:+.1f}, {high:+.1f}]"


def map_difference(one: Result, other: Result) -> Estimate | None:
    """Returns how much larger the mAP of the second is.

    Its interval is of samples of the images, the same for both. None if the results are
    not of the same images.
    """
    labels = one.right[LABELS]
    if not np.array_equal(labels, other.right[LABELS]):
        return None

    def gain(rows):
        first, second = (
            of_outputs(each.right[OUTPUTS][rows], labels[rows]) for each in (one, other)
        )
        return {"gain": second["map"] - first["map"]}

    return resampled(gain, len(labels), low=-1.0)["gain"]


def _aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        [cell.ljust(n) for cell, n in zip(row, widths, strict=True)] for row in rows
    )
    return "\n".join("  ".join(row).rstrip() for row in padded)


def markdown(rows: list[list[str]]) -> str:
    """Returns a Markdown table; the first row is the heading."""
    heading, *rows = rows
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in lines)


def _latex(rows):
    escaped = [[_escaped(cell.strip()) for cell in row] for row in rows]
    heading, *rest = (" & ".join(row) + r" \\" for row in escaped)
    columns = "l" + "r" * (len(rows[0]) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", heading, r"\midrule"]
    return "\n".join([*lines, *rest, r"\bottomrule", r"\end{tabular}"])


def _escaped(text):
    for mark in "%_#&$":
        text = text.replace(mark, rf"\{mark}")
    return text


def _numbers(results, costs):
    """Yields rows of numbers in full, with the ends of the intervals in columns."""
    metrics = metrics_of(results)
    ends = [f"{name}{end}" for name in metrics for end in ("", "_low", "_high")]
    first = ("model", "set", "measure", "part", "classes", "images")
    last = [field.name for field in dataclasses.fields(cost.Cost)]
    yield [*first, *ends, "seconds", *last]
    for each in results:
        for part, (classes, scores) in each.parts.items():
            none = (None, None, None)
            numbers = [x for name in metrics for x in scores.get(name, none)]
            first = [each.model, each.set, each.measure, part, classes, each.images]
            last = dataclasses.astuple(costs[each.model])
            yield [*first, *numbers, each.seconds, *last]


def vtab_grid(results: list[Result]) -> list[list[str]]:
    """Returns the rows of the table of VTAB: a task per row, a model per column.

    There are none without results. The last rows are the means of the groups and of
    all: Zhai et al. 2019, arXiv 1910.04867, section 2. The number of the tasks of a
    mean is stated. Columns of later models are followed by the differences from the
    first.
    """
    found = {(each.model, each.set): each for each in results if each.set in vtab.TASKS}
    if not found:
        return []
    models = list(dict.fromkeys(model for model, _ in found))
    measure = next(iter(found.values())).measure
    heading = [f"VTAB-1k, {measure}, top-1 in %", models[0]]
    for model in models[1:]:
        heading += [model, f"minus {models[0]}"]
    rows = [heading]
    present = [name for name in vtab.TASKS if (models[0], name) in found]
    for name in present:
        first = found[models[0], name]
        row = [vtab.TASKS[name].name, top1(first, measure)]
        for model in models[1:]:
            other = found[model, name]
            row += [top1(other, measure), top1_difference(first, other, measure)]
        rows.append(row)
    for group, names in {**vtab.GROUPS, vtab.NAME: list(vtab.TASKS)}.items():
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
    others = [vtab.TASKS[name].name for name in names if name not in present]
    few = 0 < len(others) < len(present)
    return f"{text}, without {', '.join(others)}" if few else text


def _cells(means):
    first, *others = means
    cells = [f"{first:.2f}"]
    for other in others:
        cells += [f"{other:.2f}", f"{other - first:+.2f}"]
    return cells
