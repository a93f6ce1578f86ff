"""Notebooks of three pages: their text, and their blocks of Python as cells."""

import base64
import re
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
PAGES = {  # file of a page: name of its notebook
    "start.md": "from_photographs_to_a_published_model.ipynb",
    "gallery.md": "look_inside_a_model.ipynb",
    "sam.md": "sharpness_aware_training.ipynb",
}
# Pictures that the cells draw; others, which cells of text hold; links to other pages.
DRAWN = re.compile(r"!\[[^]]*\]\([^)]*\.png\)\n?")
HELD = re.compile(r"(!\[[^]]*\]\()([^)]*\.svg)\)")
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https:)[^)]*\)")
# For pages with plots: each value of a cell is shown, not only the last. It needs
# matplotlib.
FIRST = '%matplotlib inline\n%config InteractiveShell.ast_node_interactivity = "all"'
TIMEOUT = 3600  # seconds of a cell


def write(out: Path, execute: bool = False) -> None:
    """Writes the notebooks into a new folder.

    Args:
        out: The folder.
        execute: Whether the cells run, in an empty folder, and what they show is kept.

    Raises:
        CellExecutionError: A cell fails.
    """
    out.mkdir()
    for page, name in PAGES.items():
        made = notebook(page)
        if execute:
            with tempfile.TemporaryDirectory() as folder:
                where = {"metadata": {"path": folder}}
                NotebookClient(made, timeout=TIMEOUT, resources=where).execute()
        nbformat.write(made, out / name)


def notebook(page: str) -> nbformat.NotebookNode:
    """Returns the notebook of a page of this folder, which has not run."""
    text = LINK.sub(r"\1", DRAWN.sub("", (HERE / page).read_text("utf-8")))
    made = jupytext.reads(HELD.sub(r"\1attachment:\2)", text), fmt="md")
    for name in {found[2] for found in HELD.finditer(text)}:
        picture = base64.b64encode((HERE / name).read_bytes()).decode()
        for cell in made.cells:
            if f"(attachment:{name})" in cell.source:
                cell["attachments"] = {name: {"image/svg+xml": picture}}
    made.cells = [cell for cell in made.cells if cell.source.strip()]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    if "look.plot" in text:
        made.cells.insert(1, nbformat.v4.new_code_cell(FIRST, id="settings"))
    return made
