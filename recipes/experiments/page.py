"""The page of an experiment, its picture and numbers, and the index of all pages."""

import dataclasses
import json
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

import keras
from filelock import FileLock
from training.curves import save_figure
from training.run_folder import write_json

from . import catalogue
from .experiment import Experiment, Results, by_seed, cell
from .settings import Settings

COLUMNS = 100
PICTURES = ("images", "heat", "filters", "similarity")
FULL = "-full"  # end of the names of such pages
OF_NO_RESULT = ("name", "out", "yes", "jobs")
INTERVAL = (
    "In brackets is the 95 % interval of the mean over the seeds, by Student's t "
    "distribution.",
    "",
)


def write(
    experiment: Experiment,
    settings: Settings,
    subjects: dict,
    results: Results,
    folder: Path,
) -> dict:
    """Writes NAME.md, NAME.png and NAME.json into `results`, and the index.

    Args:
        experiment: Experiment.
        settings: Its settings.
        subjects: {label: `pretrain.Config` or None}.
        results: {label: numbers of each seed}.
        folder: Folder of `settings.out`.

    Returns:
        The content of NAME.json.
    """
    folder = folder / "results"
    folder.mkdir(parents=True, exist_ok=True)
    name = settings.name + (FULL if settings.full else "")
    measured = [row for rows in results.values() for row in rows]
    claims = [claim.judged(by_seed(results)) for claim in experiment.claims]
    found = {
        "title": catalogue.titles()[settings.name],
        "date": " and ".join(sorted({row["date"] for row in measured})),
        "machine": " and ".join(sorted({row["machine"] for row in measured})),
        "backend": keras.backend.backend(),
        "command": command(settings),
        "claims": claims,
        "results": {label: _without_pictures(rows) for label, rows in results.items()},
    }
    draw(experiment, results, folder / f"{name}.png")
    text = markdown(experiment, settings, subjects, found)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder.parent / "locks").mkdir(exist_ok=True)
    with FileLock(folder.parent / "locks" / "index"):  # commands may end together
        write_json(folder / f"{name}.json", found)
        (folder / "README.md").write_text(index(folder), encoding="utf-8")
    return {**found, "page": text}


def _without_pictures(rows):
    """Returns numbers of each seed; pictures, which are long, of the first only."""
    kept = [{k: v for k, v in row.items() if k not in PICTURES} for row in rows[1:]]
    return [*rows[:1], *kept]


def draw(experiment: Experiment, results: Results, path: Path) -> None:
    """Draws the picture of an experiment into a file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=experiment.size, layout="constrained")
    experiment.draw(figure, results)
    save_figure(figure, path)


def command(settings: Settings) -> str:
    """Returns the command of the settings, without those that change no result."""
    options = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in OF_NO_RESULT or value == field.default:
            continue
        option = f"--{field.name}"
        values = value if isinstance(value, tuple) else (value,)
        options += [option] if value is True else [option, *map(str, values)]
    return shlex.join(["python", "recipes/reproduce.py", settings.name, *options])


def markdown(
    experiment: Experiment, settings: Settings, subjects: dict, found: dict
) -> str:
    """Returns the page.

    Args:
        experiment, settings, subjects: As for `write`.
        found: Content of the JSON file.
    """
    name = settings.name + (FULL if settings.full else "")
    count = f"{settings.seeds} seeds" if settings.seeds > 1 else "one seed"
    spread = "mean ± standard deviation" if settings.seeds > 1 else "one value each"
    return "\n".join(
        [
            f"# {name}",
            "",
            found["title"],
            "",
            f"    {found['command']}",
            "",
            *wrapped(
                f"{found['date']}, {found['machine']}, {found['backend']}; {count}. "
                + trained(subjects)
                + experiment.notes
            ),
            "",
            "## Claims",
            "",
            *table(
                ["claim", "paper", "here", "verdict"],
                [_claim(each) for each in found["claims"]],
            ),
            "",
            *(INTERVAL if settings.seeds > 1 else ()),
            "## Here",
            "",
            f"{count.capitalize()}: {spread}.",
            "",
            *table(
                ["", *(column.heading for column in experiment.columns)],
                [
                    [label, *(_cell(column, rows) for column in experiment.columns)]
                    for label, rows in found["results"].items()
                ],
            ),
            "",
            f"![results]({name}.png)",
            "",
            "## In the paper",
            "",
            experiment.paper.strip(),
            "",
        ]
    )


def trained(subjects: dict) -> str:
    """Returns a sentence about the trainings; "" if there are none."""
    configs = [config for config in subjects.values() if config is not None]
    if not configs:
        return ""
    first = configs[0]
    data = Path(first.data).name if first.data else first.dataset
    lengths = {f"{c.steps} steps" if c.steps else f"{c.epochs} epochs" for c in configs}
    sizes = {f"{config.batch_size:,}" for config in configs}
    models = dict.fromkeys(config.model for config in configs)
    return (
        f"Trained from scratch: {', '.join(models)}, on {data}, "
        f"{' or '.join(sorted(lengths))} of {' or '.join(sorted(sizes))} images. "
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(each)} |" for each in lines]


def _cell(column, rows):
    return cell([column.value(row) for row in rows], column.digits)


def _claim(claim):
    """Returns the row of a claim."""
    return [claim["text"], claim["source"], claim["here"], f"**{claim['word']}**"]


def index(folder: Path) -> str:
    """Returns the page of all experiments that have a result in a folder."""
    rows = []
    titles = catalogue.titles().items()
    for name, title in [(n + end, text) for n, text in titles for end in ("", FULL)]:
        file = folder / f"{name}.json"
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            claims = [f"{c['text']}: **{c['word']}**" for c in found["claims"]]
            link, picture = f"[{name}]({name}.md)", f"![{name}]({name}.png)"
            rows.append([link, f"{title}<br>{'<br>'.join(claims)}", picture])
    return "\n".join(
        [
            "# Figures and tables of the papers, measured",
            "",
            *wrapped(
                "Each page has the paper's numbers beside ours, with date, machine and "
                "command. Those without --full are miniatures: small models and few "
                "images do not decide about the paper. A verdict holds for the "
                "trainings on its page."
            ),
            "",
            *table(["experiment", "claims", "picture"], rows),
            "",
        ]
    )


def wrapped(text: str) -> list[str]:
    """Returns the lines of a paragraph."""
    return textwrap.wrap(text, COLUMNS, break_on_hyphens=False)
