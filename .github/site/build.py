"""Builds the documentation site: `python .github/site/build.py OUT [--execute]`.

`--execute` runs the notebooks and keeps what their cells show, in about 20 minutes.
Sphinx reads a copy of the Markdown pages, in which README.md is the index and
`.github/` is left out of the paths, and the pages of the reference.
"""

import argparse
import contextlib
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # this kerasvit, if another is there
try:
    import notebooks
    import pages
    import reference
    from sphinx.cmd.build import build_main
except ModuleNotFoundError as error:
    raise SystemExit(
        f'{error}. Type: pip install -e ".[docs]" -c constraints.txt'
    ) from None

HERE = Path(__file__).parent
# What axe asks for: scrolled boxes that keys reach, landmarks with names, a heading of
# each page, and no empty header of a column.
MENDED = {
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<aside class="sidebar-drawer': '<aside aria-label="Site" class="sidebar-drawer',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}
SIGNATURE = re.compile("<dl>(.*?)</dl>", re.DOTALL)  # a list without terms
# Links from code to the reference, some of which lead nowhere: `viewcode` knows one
# package for each file, and `kerasvit` exports only some names of a file.
BACK = re.compile('<a class="viewcode-back".*?</a>')
IN_NO_SECTION = "document isn't included in any toctree"


def main(out: Path, execute: bool) -> int:
    """Builds the site into a new folder or a former site; returns 0 if that worked.

    A former site stays if the build fails, and so do files that are not of a site.
    """
    if out.exists() and not out.is_dir():
        raise SystemExit(f"{out} is a file: choose a folder.")
    if out.exists() and any(out.iterdir()):
        if not (out / ".buildinfo").exists():
            raise SystemExit(f"{out} has other files: choose another folder.")
    with (
        tempfile.TemporaryDirectory() as sources,
        tempfile.TemporaryDirectory() as made,
    ):
        folder = Path(sources).resolve()
        notebooks.write(folder / "notebooks", execute)
        as_notebooks = {
            f".github/site/{page}": f"notebooks/{name}"
            for page, name in notebooks.PAGES.items()
        }
        pages.write(folder, reference.write(folder / "reference"), as_notebooks)
        options = ["-q", "-W", "-c", str(HERE), "-d", f"{sources}/.doctrees"]
        with contextlib.redirect_stderr(Warnings(folder)):
            failed = build_main([*options, sources, f"{made}/site"])
        if not failed:
            _put(Path(made, "site"), out)
    return failed


def _put(new: Path, out: Path) -> None:
    """Mends the pages of a site, and puts it into a folder."""
    for page in new.rglob("*.html"):
        if "_downloads" not in page.parts:
            page.write_text(_mended(page.read_text("utf-8")), "utf-8")
    for path in new.iterdir():
        former = out / path.name
        if former.is_dir():
            shutil.rmtree(former)
    shutil.copytree(new, out, dirs_exist_ok=True)


class Warnings(io.StringIO):
    """Prints what Sphinx warns of, with the files of the repository.

    Args:
        sources: The folder with their copies.
    """

    encoding = "utf-8"

    def __init__(self, sources: Path) -> None:
        super().__init__()
        self.copy = re.compile(re.escape(f"{sources}/") + r"([^\s:]+)")
        self.printed = sys.stderr

    def write(self, text: str) -> int:
        """Prints a warning."""
        text = self.copy.sub(lambda found: pages.original(found[1]), text)
        told = "the page is in no section: add it to .github/site/pages.toml"
        return self.printed.write(text.replace(IN_NO_SECTION, told))


def _mended(text: str) -> str:
    for before, after in MENDED.items():
        text = text.replace(before, after)
    return BACK.sub("", SIGNATURE.sub(_without_list, text))


def _without_list(found: re.Match) -> str:
    arguments = found[1].replace("<dd>", "<div>").replace("</dd>", "</div>")
    return f'<div class="arguments">{arguments}</div>'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--execute", action="store_true")
    arguments = parser.parse_args()
    raise SystemExit(main(arguments.out, arguments.execute))
