"""Writes the scores of a model into its card, README.md, for readers and the Hub.

paths = card.paths(names, candidates, store)
card.write(paths["vit"], results, cost)
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from devices import device_name
from training.progress import counted
from training.run_folder import replace_file

from kerasvit.hub import read_page

from . import pages, tables
from .catalogue import SETS
from .cost import COLUMNS, Cost, cells
from .results import Result

# {name of a number: (type, name) in the Hub's metadata}; others are not in it.
KINDS = {
    "top1": ("accuracy", "top-1 accuracy"),
    "top5": ("top_5_accuracy", "top-5 accuracy"),
    "nll": ("nll", "negative log-likelihood"),
    "ece": ("expected_calibration_error", "expected calibration error, 15 bins"),
}
MEASURES = {
    "few_shot": "few-shot least squares",
    "knn": "k-NN",
    "probe": "linear probe",
}
TASK = {"type": "image-classification", "name": "image classification"}


def paths(names: Sequence[str], candidates: Sequence, store) -> dict[str, Path]:
    """Returns {name of a candidate: path of its card}, which can be written.

    The card of a folder, of a training its `model`, is the README.md there. Other
    models get one beside their results.

    Args:
        names: Names of the models in the command.
        candidates: `candidates.Candidate` of each.
        store: `results.Store`.

    Raises:
        ValueError: A card cannot be changed.
    """
    found = {
        each.name: _path(name, store.folder_of(each.name))
        for name, each in zip(names, candidates, strict=True)
    }
    if store.here.is_first:
        for path in found.values():
            _check(path)
    return found


def _path(name, folder):
    given = Path(name).expanduser()
    if (given / "result.json").is_file() and (given / "model").is_dir():
        given = given / "model"
    return (given if given.is_dir() else folder) / "README.md"


def _check(path):
    try:
        pages.updated(_page(path), "", [], "")
        unfinished = _unfinished(path)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch()
        unfinished.unlink()
    except (ValueError, OSError) as error:
        raise ValueError(
            f"`card`: {path} cannot be changed: {error}. Correct it, or leave out "
            "--card."
        ) from error


def write(path: Path, results: list[Result], cost: Cost) -> None:
    """Writes results into a card, in place of those of an earlier run.

    Args:
        path: Path of the README.md.
        results: Results of one model.
        cost: Its cost.
    """
    found = [each for result in results for each in entries(result)]
    text = section(results, cost)
    page = pages.updated(_page(path), results[0].model, found, text)
    unfinished = _unfinished(path)
    unfinished.write_bytes(page)
    replace_file(unfinished, path)


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
            "top1, top5 and ece in %; brackets: 95 % intervals.",
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


def _protocol(result):
    """Returns a line about a set: what counts as right, and what is left out."""
    published = SETS.get(result.set)
    text = (
        f"- {result.set}: {published.protocol if published else 'top-1 of all classes'}"
    )
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


def _unfinished(path):
    return path.with_name(f".{path.name}")
