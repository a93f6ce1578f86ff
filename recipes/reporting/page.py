"""Writes the report: one HTML page, its numbers as JSON, its tables as LaTeX."""

import html
import string
from pathlib import Path

from training.run_folder import replace_file, write_json

from . import tables
from .figures import Picture
from .measures import MEASURES, duration
from .sections import SECTIONS, reading_of

TEMPLATE = Path(__file__).with_name("page.html")


def write(report: dict, folder: Path) -> None:
    """Writes inspection.html, inspection.json and inspection.tex.

    Args:
        report: {"data": name of the images, "settings", "versions", "command",
            "models": facts of each model, "measures": {name: {model: what
            `measures.measured` returns}}}.
        folder: Folder of the report.
    """
    blocks = {name: _blocks(name, found) for name, found in report["measures"].items()}
    texts = {
        "inspection.html": _page(report, blocks),
        "inspection.tex": _latex(report, blocks),
    }
    for name, text in texts.items():
        unfinished = folder / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        replace_file(unfinished, folder / name)
    write_json(folder / "inspection.json", described(report))


def described(report: dict) -> dict:
    """Returns the report with the definition of each measure beside its numbers."""
    measures = {
        name: {
            "title": SECTIONS[name].title,
            "definition": SECTIONS[name].definition,
            "source": SECTIONS[name].source,
            "models": found,
        }
        for name, found in report["measures"].items()
    }
    return {**report, "measures": measures}


def _blocks(name, found):
    """Returns the tables and pictures of a measure."""
    numbers = {k: each["numbers"] for k, each in found.items() if "numbers" in each}
    return MEASURES[name].show(numbers) if numbers else []


def _page(report, blocks):
    names = [model["name"] for model in report["models"]]
    versions = report["versions"]
    about = (
        f"{report['images']} images of {report['data']}. Keras {versions['keras']} on "
        f"{versions['backend']}, float32, seed {report['settings']['seed']}."
    )
    template = string.Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(f"Inspection of {' and '.join(names)}"),
        about=html.escape(about),
        models=_models(report["models"]),
        contents="\n".join(
            f'<li><a href="#{name}">{html.escape(SECTIONS[name].title)}</a></li>'
            for name in blocks
        ),
        sections="\n".join(
            _section(name, report["measures"][name], found)
            for name, found in blocks.items()
        ),
        footer=_footer(report),
    )


def _models(models):
    """Returns the table of the models with their colours."""
    head = ("", "architecture", "weights", "image", "accuracy (%)", "mean loss")
    rows = [
        [
            model["name"],
            model["architecture"],
            model["parameters"],
            " × ".join(map(str, model["image size"])),
            100 * model["accuracy"],
            model["loss"],
        ]
        for model in models
    ]
    marks = [
        f'<span class="key" style="color:var(--model-{i});border-top-style:{line}">'
        "</span>"
        for i, line in enumerate(("solid", "dashed")[: len(models)])
    ]
    return tables.to_html(
        tables.Table("The models, on these images", head, rows), marks
    )


def _section(name, found, blocks):
    section = SECTIONS[name]
    parts = [
        f'<section id="{name}">',
        f"<h2>{html.escape(section.title)}</h2>",
        f"<p>{html.escape(section.definition)} "
        f'<span class="soft">({html.escape(section.source)}.)</span></p>',
    ]
    if blocks:
        parts.append(f'<p class="reading">{html.escape(section.reading)}</p>')
    parts += [
        f"<p><em>{html.escape(_reason(label, each))}</em></p>"
        for label, each in found.items()
        if "reason" in each
    ]
    shown = [each for each in blocks if isinstance(each, tables.Table)]
    parts += map(tables.to_html, shown)
    pictures = [_figure(each) for each in blocks if isinstance(each, Picture)]
    if pictures:
        parts.append(f'<div class="pictures">{"".join(pictures)}</div>')
    if shown:
        rows = html.escape("\n\n".join(map(tables.to_latex, shown)))
        parts.append(
            f"<details><summary>Rows in LaTeX</summary><pre>{rows}</pre></details>"
        )
    if any("seconds" in each for each in found.values()):
        parts.append(f'<p class="cost">{html.escape(_cost(found))}</p>')
    return "\n".join([*parts, "</section>"])


def _figure(picture):
    return (
        f"<figure><figcaption>{html.escape(picture.caption)}</figcaption>"
        f'{picture.svg}<p class="soft">{html.escape(reading_of(picture.caption))}</p>'
        "</figure>"
    )


def _reason(label, found):
    return (
        found["reason"] if label in found["reason"] else f"{label}: {found['reason']}"
    )


def _cost(found):
    """Returns a line about the time of a measure."""
    times = [
        f"{duration(each['seconds'])}" + (f" ({label})" if len(found) > 1 else "")
        for label, each in found.items()
        if "seconds" in each
    ]
    return f"Measured in {' and '.join(times)}, compilation included."


def _footer(report):
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    settings = ", ".join(f"{k} {v}" for k, v in report["settings"].items())
    hashes = "; ".join(
        f"{model['name']}: {model['weights sha256'][:16]}" for model in report["models"]
    )
    lines = [
        f"Command: {report['command']}",
        f"Settings: {settings}.",
        f"Versions: {versions}.",
        f"SHA-256 of the weights: {hashes}.",
        "All numbers are in the JSON file beside this page.",
    ]
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _latex(report, blocks):
    parts = [f"% Inspection of {' and '.join(m['name'] for m in report['models'])}"]
    for name, found in blocks.items():
        for each in found:
            if isinstance(each, tables.Table):
                title = f"% {SECTIONS[name].title}. {each.caption}."
                parts.append(f"{title}\n{tables.to_latex(each)}")
    return "\n\n".join(parts) + "\n"
