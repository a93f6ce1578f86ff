"""Notebooks are the pages of the site, and run."""

import re
from pathlib import Path

import pytest

from tests.once import on_last_backend
from tests.test_site import module
from tests.test_snippets import blocks

SITE = Path(__file__).parents[1] / ".github/site"
PAGES = "start", "gallery", "sam"
pytestmark = on_last_backend


@pytest.fixture(scope="module")
def notebooks():
    pytest.importorskip("jupytext", reason='the packages of ".[docs]" are missing')
    return module("notebooks")


def test_each_page_has_a_notebook(notebooks):
    assert [f"{page}.md" for page in PAGES] == list(notebooks.PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_has_the_blocks_and_the_text_of_its_page(page, notebooks):
    text = (SITE / f"{page}.md").read_text("utf-8")
    cells = notebooks.notebook(f"{page}.md").cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    if notebooks.FIRST in code:
        code.remove(notebooks.FIRST)
    assert code == [block.strip() for block in blocks(text)]
    written = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "```python" not in written
    assert not re.search(r"\]\((?!https:|attachment:)", written)
    held = [name for cell in cells for name in cell.get("attachments", {})]
    assert re.findall(r"\(attachment:(.*?)\)", written) == held
    assert held == re.findall(r"\]\(([^)]*\.svg)\)", text)
    titles = re.findall(r"^#+ .*$", text, re.MULTILINE)
    assert re.findall(r"^#+ .*$", written, re.MULTILINE) == titles


@pytest.mark.long
def test_notebooks_run(notebooks, tmp_path):
    notebooks.write(tmp_path / "made", execute=True)  # an error of a cell is raised
    pictures = {
        page: (tmp_path / "made" / name).read_text("utf-8").count('"image/png"')
        for page, name in notebooks.PAGES.items()
    }
    gallery = (SITE / "gallery.md").read_text("utf-8")
    assert pictures["gallery.md"] == gallery.count("![")
