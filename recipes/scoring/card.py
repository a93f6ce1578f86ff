"""Writes the scores of a model into its card, README.md, for readers and the Hub.

paths = card.paths(names, candidates, store)
card.write(paths["vit"], results, cost)
"""

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from devices import device_name
from training.progress import counted

from kerasvit.hub import is_generated, read_page, signed, split_page

from . import tables
from .catalogue import SETS
from .confusion import with_section, write_page
from .cost import COLUMNS, Cost, cells
from .results import Result

# {name of a number: (type, name) in the Hub's metadata}; others are not in it.
KINDS = {
    "top1": ("accuracy", "top-1 accuracy"),
    "top5": ("top_5_accuracy", "top-5 accuracy"),
    "nll": ("nll", "negative log-likelihood"),
    "ece": ("expected_calibration_error", "expected calibration error, 15 bins"),
    "map": ("mean_average_precision", "mean average precision over classes"),
    "f1_micro": ("f1", "F1, micro"),
    "f1_macro": ("f1", "F1, macro"),
    "f1_samples": ("f1", "F1, samples"),
}
MEASURES = {
    "few_shot": "few-shot least squares",
    "knn": "k-NN",
    "probe": "linear probe",
}
TASK = {"type": "image-classification", "name": "image classification"}
BY = "recipes/evaluate.py"
START = f"<!-- Written by {BY}, which replaces it: -->"
KEY = "model-index"


def paths(names: Sequence[str], candidates: Sequence, store) -> dict[str, Path]:
    """Returns {name of a candidate: path of its card}, which can be written.

    The card of a folder, of a training its `model`, is the README.md there. Other
    models get one beside their results.

    Raises:
        ValueError: A card cannot be changed.
    """
    found = {
        each.name: _path(name, store.folder_of(each.name))
        for name, each in zip(names, candidates, strict=True)
    }
    if store.devices.is_first:
        for path in found.values():
            _check(path)
    return found


def _path(name, folder):
    given = Path(os.path.expanduser(name))
    if (given / "result.json").is_file() and (given / "model").is_dir():
        given = given / "model"
    return (given if given.is_dir() else folder) / "README.md"


def _check(path):
    try:
        updated(_page(path), "", [], "")
        unfinished = path.with_name(f".{path.name}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch()
        unfinished.unlink()
    except (ValueError, OSError) as error:
        raise ValueError(
            f"`card`: {path} cannot be changed: {error}. Correct it, or leave out "
            "--card."
        ) from error


def write(path: Path, results: list[Result], cost: Cost) -> None:
    """Writes results into a card, in place of those of an earlier run."""
    found = [each for result in results for each in entries(result)]
    text = section(results, cost)
    write_page(path, updated(_page(path), results[0].model, found, text))


def entries(result: Result) -> list[dict]:
    """Returns the entries of a result in the `model-index` of the Hub."""
    found = []
    for part, (classes, scores) in result.parts.items():
        name = tables.heading(result, part)
        metrics = [
            {
                **dict(zip(("type", "name"), KINDS[key], strict=True)),
                "value": round(value, 6),
                "args": {"interval_95": [round(low, 6), round(high, 6)]},
            }
            for key, (value, low, high) in scores.items()
            if key in KINDS and all(map(math.isfinite, (value, low, high)))
        ]
        for metric in metrics:
            metric["args"] |= {"images": result.images, "classes": classes}
        dataset = {"type": result.set, "name": name}
        if metrics:
            found.append({"task": TASK, "dataset": dataset, "metrics": metrics})
    return found


def section(results: list[Result], cost: Cost) -> str:
    """Returns the text for readers: the numbers and how they were measured."""
    pairs = zip(cells(cost), COLUMNS.values(), strict=True)
    costs = [f"{number} {name}" for number, name in pairs if number]
    if cost.images_per_second is not None:
        costs[-1] += f" ({device_name.of_first()})"
    rows = [row[1:-1] for row in tables.details(results)]  # no model, no seconds
    sets = {each.set: each for each in results}
    on_features = [each for each in results if "measures" in each.settings]
    settings, versions = results[-1].settings, results[-1].versions
    return "\n\n".join(
        [
            "## Scores",
            tables.markdown(rows),
            f"{_percentages(results)} in %; brackets: 95 % intervals.",
            "\n".join(
                [*map(_protocol, sets.values()), *map(_of_features, on_features)]
            ),
            f"The model has {' and '.join(costs)}.",
            "Images were prepared by `kerasvit.Preprocessing`: "
            f"`{json.dumps(settings['transform'])}`. "
            f"Precision: {settings['dtype']}. Software: "
            f"{', '.join(f'{k} {v}' for k, v in versions.items())}.",
        ]
    )


def _percentages(results):
    metrics = tables.metrics_of(results)
    *names, last = (name for name in metrics if name in tables.PERCENT)
    return f"{', '.join(names)} and {last}"


def _protocol(result):
    """Returns a line about a set: what counts as right, and what is left out."""
    published = SETS.get(result.set)
    is_labels = tables.metrics_of([result]) != tables.METRICS
    usual = "mAP, and F1 by thresholds" if is_labels else "top-1 of all classes"
    text = f"- {result.set}: {published.protocol if published else usual}"
    if result.left_out:
        text += f"; {counted(result.left_out)} without a class of the model left out"
    return f"{text}."


def _of_features(result):
    """Returns a line about the features and the images that a classifier learned."""
    settings = result.settings
    measures = " and ".join(MEASURES[name] for name in settings["measures"])
    train, validation = settings["training_images"]
    held = f" and {validation:,} validation" if validation else ""
    return (
        f"- {result.set}, {measures}: of frozen features, "
        f"{settings['layer'] or 'the input of the head'}; {train:,} training{held} "
        "images."
    )


def _page(path):
    return read_page(path) if path.exists() else b""


def updated(before: bytes, name: str, results: list[dict], section: str) -> bytes:
    """Returns a page with results, in place of those that this function added before.

    The text of the user, other metadata and results of others stay as they are. A page
    that kerasvit generated counts as generated afterwards, too: `save_pretrained`
    replaces it.

    Args:
        before: Content of a README.md, b"" for a new one.
        name: Name of the model, if the page has none.
        results: Entries of the Hub's `model-index`; their metrics get the argument
            "by", by which they are found again.
        section: Text with the heading "## …".

    Raises:
        ValueError: The metadata at the head of the page cannot be read.
    """
    text = before.decode("utf-8", "surrogateescape")
    metadata, body = split_page(text)
    head = text[: len(text) - len(body)]
    body = body if body.strip() else f"# {name}\n"
    head = _with_value(head, metadata, _index(metadata.get(KEY), name, results))
    page = head + with_section(body, START, section)
    if text.strip() and is_generated(before):
        page = signed(page)
    return page.encode("utf-8", "surrogateescape")


def _index(index, name, results):
    """Returns the `model-index` with the results in its first model."""
    index = [{"name": name, "results": []}] if index is None else index
    try:
        [first, *others] = index
        kept = [each for each in first["results"] if not _is_ours(each)]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(
            f'`{KEY}` must be a list of models, each with "name" and "results". '
            f"Received: {index!r:.200}"
        ) from error
    for result in results:
        for metric in result["metrics"]:
            metric.setdefault("args", {})["by"] = BY
    return [{**first, "results": kept + results}, *others]


def _is_ours(result):
    arguments = [metric.get("args") for metric in result["metrics"]]
    return any(isinstance(x, dict) and x.get("by") == BY for x in arguments)


def _with_value(head, metadata, value):
    """Returns a YAML block in which only the value of `KEY` differs."""
    new = f"{KEY}: {json.dumps(value, ensure_ascii=False, default=str)}\n"
    if not head:
        return f"---\n{new}---\n"
    opening, *lines, closing = head.strip().splitlines(keepends=True)
    root = yaml.compose("".join(lines))
    if root and root.flow_style:  # {license: mit}
        rest = {k: v for k, v in metadata.items() if k != KEY}
        lines = [f"{k}: {json.dumps(v, default=str)}\n" for k, v in rest.items()]
    else:
        for key, old in reversed(root.value if root else []):
            if key.value == KEY:
                end = old.end_mark.line + (old.end_mark.column > 0)
                while re.match(r"\s*(#|$)", lines[end - 1]):  # what follows is kept
                    end -= 1
                del lines[key.start_mark.line : end]
    return "".join([opening, *lines, new, closing.rstrip(), "\n"])
