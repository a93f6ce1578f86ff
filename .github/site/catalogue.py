"""The table of all variants and their public weights."""

import json
from html import escape
from pathlib import Path

from reference import PAGES, names_of

import kerasvit

ROOT = Path(__file__).parents[2]
SPEEDS = json.loads(Path(__file__).with_name("speeds.json").read_text("utf-8"))
BACKENDS = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
# Title of a column → whether it is numeric.
COLUMNS = {
    "variant": False,
    "weights": False,
    "top-1 %": True,
    "million parameters": True,
    "10⁹ multiply-adds": True,
    **{f"images/s, {name}": True for name in BACKENDS.values()},
    "licence": False,
    "real file met": False,
    "source": False,
}


def rows() -> list[list[str]]:
    """Returns the cells of all rows: a variant alone, then with each of its weights."""
    facts = json.loads((ROOT / "weights/status.json").read_text("utf-8"))["names"]
    places = {name: page["file"] for page in PAGES for name in names_of(page)}
    found = []
    for name in kerasvit.list_models():
        variant = getattr(kerasvit, name)
        page = places[f"kerasvit.{name}"]
        first = [_link(f"reference/{page}.html#kerasvit.{name}", name)]
        cost = [f"{variant.parameters / 1e6:.1f}", f"{variant.multiply_adds:g}"]
        cost += [
            SPEEDS["images/s"].get(name, {}).get(backend, "") for backend in BACKENDS
        ]
        found.append([*first, "", "", *cost, "", "", ""])
        for entry in kerasvit.list_weights(name):
            top1 = f"{entry.top1['percent']:.2f}" if entry.top1 else ""
            met = facts.get(f"{name}/{entry.tag}", {}).get("loaded")
            address = f"https://huggingface.co/{entry.source}"
            holder = entry.source.removeprefix("https://").split("/")[0]
            source = _link(address if entry.on_hub else entry.source, holder)
            about = [escape(entry.license), "yes" if met else "no"]
            tag = escape(entry.tag)
            found.append([*first, tag, top1, *cost, *about, source])
    return found


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def table() -> str:
    """Returns the table as HTML; static/table.js sorts and filters it."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in COLUMNS)
    body = "".join(f"<tr>{''.join(map(_cell, row, COLUMNS))}</tr>" for row in rows())
    return (
        f"<p>Images per second: the forward pass of {SPEEDS['batch']} images of the "
        f"variant's size in {SPEEDS['dtype']} on {escape(SPEEDS['device'])} "
        f"({SPEEDS['date']}); empty where it was not measured.</p>"
        '<div class="table-wrapper" role="region" aria-label="Models and weights">'
        f'<table class="catalogue"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _cell(content: str, title: str) -> str:
    return (
        f'<td class="number">{content}</td>'
        if COLUMNS[title]
        else f"<td>{content}</td>"
    )
