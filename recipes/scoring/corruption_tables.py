"""Prints and writes the accuracies on corrupted images."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

from training.progress import counted

from . import corruption_picture, tables
from .corrupted import part_name
from .kinds import KINDS, SEVERITIES
from .results import Result
from .robustness import Summary


def line(result: Result) -> str:
    """Returns a line about the result of a corruption."""
    shares = [
        f"{100 * result.parts[part_name(i, 'all')].scores['top1'].value:.1f}"
        for i in SEVERITIES
    ]
    head = f"{result.model}, {result.set}, {result.measure}, {counted(result.images)}"
    return f"{head}: top-1 of severities 1 to 5 {', '.join(shares)} %."


def compared(summaries: Sequence[Summary]) -> list[list[list[str]]]:
    """Returns the rows of a table for each set: corruptions by models.

    The last rows are the means, mCE and relative mCE, these times 100.
    """
    titles = dict.fromkeys(each.title for each in summaries)
    return [_compared([x for x in summaries if x.title == name]) for name in titles]


def _compared(found):
    kinds = [kind for kind in KINDS if any(kind in each.means for each in found)]
    rows = [[f"{found[0].title}: top-1 in %", *(each.model for each in found)]]
    for kind in kinds:
        rows.append([kind, *(_percent(each.means.get(kind)) for each in found)])
    names = list(dict.fromkeys(each.mean_name for each in found))
    for name in names:
        cells = (
            _percent(each.mean) if each.mean_name == name else "" for each in found
        )
        rows.append([name, *cells])
    for name, field in (("mCE", "mce"), ("relative mCE", "relative_mce")):
        ratios = [getattr(each, field) for each in found]
        scales = {(x.reference, x.kinds) for x in ratios if x}
        for reference, count in sorted(scales):
            label = f"{name} of {count} kinds ({reference}: 100)"
            cells = (_ratio(x, (reference, count)) for x in ratios)
            rows.append([label, *cells])
    return rows


def by_severity(summary: Summary) -> list[list[str]]:
    """Returns the rows of a table: corruptions by severities."""
    head = f"{summary.title}, {summary.model}: top-1 in %"
    rows = [[head, *map(str, SEVERITIES), "mean"]]
    for kind, found in summary.severities.items():
        cells = [f"{100 * each.value:.1f}" for each in found]
        rows.append([kind, *cells, _percent(summary.means[kind])])
    cells = [f"{100 * each.value:.1f}" for each in summary.means_of_severities]
    return [*rows, [summary.mean_name, *cells, _percent(summary.mean)]]


def write(summaries: Sequence[Summary], folder: Path) -> None:
    """Writes corruptions.txt, .csv, .md, .tex, .json and .png, if there are any."""
    if not summaries:
        return
    found = [*compared(summaries), *map(by_severity, summaries)]
    content = [_content(each) for each in summaries]
    tables.write_files(folder, "corruptions", found, _csv(summaries), content)
    corruption_picture.draw(summaries, folder / "corruptions.png")


def _percent(estimate):
    """Returns "78.30 [77.9, 78.7]"; "" for None."""
    if estimate is None:
        return ""
    value, low, high = (100 * each for each in estimate)
    return f"{value:.2f} [{low:.1f}, {high:.1f}]"


def _ratio(ratio, scale):
    if ratio is None or (ratio.reference, ratio.kinds) != scale:
        return ""
    if ratio.interval is None:
        return f"{100 * ratio.value:.1f}"
    return _percent((ratio.value, *ratio.interval))


def _content(summary):
    """Returns all numbers as JSON."""
    ratios = {"mce": summary.mce, "relative_mce": summary.relative_mce}
    return {
        "model": summary.model,
        "set": summary.set,
        "classes": summary.classes,
        "images": summary.first.images,
        "top1": summary.severities,
        "means": summary.means,
        "mean": summary.mean,
        "left_out": summary.left_out,
        **{name: each and dataclasses.asdict(each) for name, each in ratios.items()},
    }


def _csv(summaries):
    """Returns a number per row, with the ends of its interval."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    first = ("model", "set", "classes", "images")
    rows.writerow([*first, "kind", "severity", "metric", "value", "low", "high"])
    for each in summaries:
        first = each.model, each.set, each.classes, each.first.images
        for kind, result in each.results.items():
            for severity in SEVERITIES:
                scores = result.parts[part_name(severity, each.part)].scores
                for metric, numbers in scores.items():
                    rows.writerow([*first, kind, severity, metric, *numbers])
            rows.writerow([*first, kind, "mean", "top1", *each.means[kind]])
        rows.writerow([*first, "mean", "mean", "top1", *each.mean])
        for name in ("mce", "relative_mce"):
            if ratio := getattr(each, name):
                ends = ratio.interval or (None, None)
                rows.writerow([*first, "mean", "mean", name, ratio.value, *ends])
    return text.getvalue()
