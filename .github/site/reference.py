"""The pages of the reference: which public names there are, and on which page."""

import ast
import functools
import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONTENT = tomllib.loads((HERE / "reference.toml").read_text("utf-8"))
PAGES = CONTENT["page"]
DATA = ".. py:data::"


def names_of(page: dict[str, Any]) -> list[str]:
    """Returns the full names on a page."""
    family = all_of(f"kerasvit.models.{page['family']}") if "family" in page else []
    return [f"kerasvit.{name}" for name in [*family, *page.get("names", ())]]


def source(module: str) -> Path:
    """Returns the file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def all_of(module: str) -> list[str]:
    """Returns `__all__` of a module, without importing it."""
    for node in ast.parse(source(module).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"{module} has no __all__.")


def exported(room: str) -> dict[str, str]:
    """Returns {name: module that it is imported from} of a package's public names.

    They are those of `import name as name` and of `import *`.
    """
    found = {}
    for node in ast.walk(ast.parse(source(room).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            inner = f".{node.module}" if node.module else ""
            module = f"{room}{inner}" if node.level else str(node.module)
            for alias in node.names:
                if alias.name == "*":
                    found |= dict.fromkeys(all_of(module), module)
                elif alias.asname == alias.name and alias.name[0] != "_":
                    found[alias.name] = module
    return found


@functools.cache
def public() -> dict[str, str]:
    """Returns {full name: module that it is imported from} of all public names.

    What `kerasvit` exports is public there, and not once more in its room. A room is
    the subject of its own pages.
    """
    rooms = {name.rpartition(".")[0] for page in PAGES for name in names_of(page)}
    top = exported("kerasvit")
    return {
        name: module
        for room in sorted(rooms)
        for short, module in exported(room).items()
        if (room == "kerasvit" or short not in top)
        and (name := f"{room}.{short}") not in rooms | CONTENT["left_out"].keys()
    }


def check(pages: list[dict[str, Any]]) -> None:
    """Checks that the pages have all public names, and no others.

    Raises:
        ValueError: They have not.
    """
    missing = public().keys()
    for page in pages:
        names = names_of(page)
        if unknown := [name for name in names if name not in public()]:
            raise ValueError(
                f"reference.toml, page {page['file']!r}: {unknown} are no public names "
                "(`import name as name`). Mend or remove them."
            )
        missing -= {*names}
    if missing:
        raise ValueError(
            f"Public names on no page of reference.toml: {sorted(missing)}. Add them."
        )


def write(folder: Path) -> list[str]:
    """Writes the pages; returns their names.

    Raises:
        ValueError: A public name is on no page, a page has an unknown name, or a
            constant has no comment.
    """
    check(PAGES)
    folder.mkdir()
    for page in PAGES:
        lines = [page["title"], "=" * len(page["title"]), ""]
        if "about" in page:
            lines += [f".. automodule:: {page['about']}", "   :no-index:", ""]
        # Variants and constants come last.
        entries = [_entry(name) for name in names_of(page)]
        entries.sort(key=lambda lines: lines[0].startswith(DATA))
        lines += [line for entry in entries for line in entry]
        (folder / f"{page['file']}.rst").write_text("\n".join(lines), "utf-8")
    return [page["file"] for page in PAGES]


def _entry(name: str) -> list[str]:
    """Returns the directive of a name."""
    room, _, short = name.rpartition(".")
    found = getattr(importlib.import_module(room), short)
    if isinstance(found, importlib.import_module("kerasvit").Variant):
        return _of_variant(name, found)
    if inspect.ismodule(found):
        return [f".. automodule:: {name}", "   :members:", ""]
    if inspect.isclass(found):
        return [f".. autoclass:: {name}", "   :members:", ""]
    if callable(found):
        return [f".. autofunction:: {name}", ""]
    return _of_constant(name, found)


def _of_variant(name: str, variant: Any) -> list[str]:
    """Returns the entry of a variant: what its docstring says beside its arguments."""
    paragraphs = variant.__doc__.split("\n\n")
    weights = [each for each in paragraphs if each.startswith("Public weights:")]
    height, width = variant.size
    builder, module = variant.builder.__name__, public()[name]
    code = f"`{module} <../_modules/{module.replace('.', '/')}.html>`__"
    lines = [
        "",
        f"{variant.parameters:,} parameters, {variant.multiply_adds:g} · 10⁹ "
        f"multiply-adds for an image of {height} × {width} pixels.",
        *(weights and ["", weights[0].replace('"', "``").replace("\n", " ")]),
        "",
        f"Builder: ``kerasvit.{builder}``. Other arguments: ``kerasvit.Variant``. "
        f"Source code: {code}.",
    ]
    return _data(name, lines)


def _of_constant(name: str, value: Any) -> list[str]:
    """Returns the entry of a constant: its comment, and its value if that is short."""
    from docstrings import as_rst
    from sphinx.pycode import ModuleAnalyzer

    short = name.rpartition(".")[2]
    analyzer = ModuleAnalyzer.for_module(public()[name])
    comment = analyzer.find_attr_docs().get(("", short))
    if not comment:
        raise ValueError(f"{name} has no comment that begins with `#:`. Write one.")
    shown = [f":value: {value!r}"] if len(repr(value)) < 80 else []
    return _data(name, [*shown, "", *as_rst(comment)])


def _data(name: str, lines: list[str]) -> list[str]:
    room, _, short = name.rpartition(".")
    below = [f":module: {room}", *lines]  # not the module that the page is about
    return [f"{DATA} {short}", *(f"   {line}" for line in below), ""]
