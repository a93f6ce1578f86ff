"""The Markdown pages of the site: which they are, where they stand, and their links."""

import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MENU = tomllib.loads((HERE / "pages.toml").read_text("utf-8"))
START = "README.md"
LINK = re.compile(r"\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
HIDDEN = ":hidden:\n"  # only in the menu
TREE = "\n\n```{{toctree}}\n{}\n{}\n```\n"


def sections() -> dict[str, list[str]]:
    """Returns {title: pages} of the menu, paths from the repository's root."""
    return {title: _expanded(pages) for title, pages in MENU["sections"].items()}


def left_out() -> list[str]:
    """Returns the Markdown files that are no pages."""
    return _expanded(MENU["left_out"])


def _expanded(patterns: Iterable[str]) -> list[str]:
    """Returns the files of patterns in order, each once."""
    found = (
        path.relative_to(ROOT).as_posix()
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern)) or [ROOT / pattern]
    )
    return list(dict.fromkeys(found))


def staged(path: str) -> str:
    """Returns where a file of the repository stands in the site."""
    if path == START:
        return "index.md"
    return path.removeprefix(".github/").removeprefix("site/")


def original(path: str) -> str:
    """Returns the file of the repository that stands at a place of the site."""
    files = [START] if path == "index.md" else []
    files += [f"{folder}{path}" for folder in (".github/site/", ".github/", "")]
    return next((file for file in files if (ROOT / file).is_file()), path)


def write(out: Path, reference: list[str], notebooks: Mapping[str, str]) -> None:
    """Copies the pages, with the menu at their ends.

    Args:
        out: Folder that is written.
        reference: Names of the pages of the reference, in `out`/reference.
        notebooks: {page: its notebook, in `out`}.
    """
    menu = sections()
    pages = {START, *(page for each in menu.values() for page in each)}
    top = [f"{title} </{staged(first)}>" for title, (first, *_) in menu.items()]
    _copy(START, out, pages, TREE.format(HIDDEN, "\n".join(["Start <self>", *top])))
    for title, (first, *others) in menu.items():
        below = [f"/{staged(page)}" for page in others]
        option = HIDDEN
        if title == "Reference":
            below, option = [f"/reference/{name}" for name in reference], ""
        tree = TREE.format(option, "\n".join(below)) if below else ""
        _copy(first, out, pages, tree)
        for page in others:
            _copy(page, out, pages)
    for page, notebook in notebooks.items():
        text = (out / staged(page)).read_text("utf-8")
        title, first, rest = text.split("\n\n", 2)
        first += f" This page is a [notebook]({notebook}), too."  # adds no line
        _put(out / staged(page), f"{title}\n\n{first}\n\n{rest}".encode())


def _copy(path: str, out: Path, pages: set[str], tree: str = "") -> None:
    """Copies a page and the other files that it links to."""
    here = PurePosixPath(staged(path)).parent

    def moved(link: re.Match) -> str:
        target = posixpath.normpath(PurePosixPath(path).parent / link[1])
        if target not in pages and (ROOT / target).is_file():
            _put(out / staged(target), (ROOT / target).read_bytes())
        return f"]({posixpath.relpath(staged(target), here)}{link[2]})"

    text = LINK.sub(moved, (ROOT / path).read_text("utf-8"))
    _put(out / staged(path), (text + tree).encode())


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
