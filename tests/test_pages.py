"""The pages are short, and what they name exists: names, files, sections, options."""

import ast
import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

import kerasvit
from tests.once import on_last_backend

pytestmark = on_last_backend
ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(each for room in (".github", "kerasvit", "weights", "recipes", "tests")
      for each in (ROOT / room).rglob("*.md")),
]  # fmt: skip
LINES = {
    **{"README.md": 120, "recipes/README.md": 150, ".github/CONTRIBUTING.md": 110},
    "kerasvit/models/README.md": 300,  # one line a variant
    ".github/site/gallery.md": 230,  # a block for each kind of measurement
}
TABLES = {"recipes/MEASURED.md", "recipes/PRESETS.md", "weights/STATUS.md"}
OF_OTHERS = {"--help"} | {  # options of other programs
    *("--nodes", "--ntasks-per-node", "--gpus-per-node", "--requeue", "--signal"),
    *("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"),
    *("--shutdown-timeout", "--command", "--worker", "--zone"),
    *("--data-binary", "--strict", "--opt", "--wd"),
}
OUTSIDE = {"md", "git", "json"}  # ends of kerasvit/….md and of addresses


def page(path):
    return path.read_text(encoding="utf-8")


def exists(name):
    """Whether a dotted name of the package is an attribute or a module."""
    found, path = kerasvit, "kerasvit"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(type(found), "__mro__") or not hasattr(found, part):
            try:
                found = importlib.import_module(path)
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_exist(path):
    names = set(re.findall(r"\bkerasvit(?:\.[A-Za-z]\w*)+", page(path)))
    named = {name for name in names if name.rpartition(".")[2] not in OUTSIDE}
    assert [name for name in sorted(named) if not exists(name)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    links = set(re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", page(path)))
    assert [link for link in sorted(links) if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_sections(path):
    links = re.findall(r"\]\(([^)#: ]*)#([^)]*)\)", page(path))
    for file, section in links:
        text = page(path.parent / file if file else path)
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        found = {re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in titles}
        assert section in found, f"{file}#{section}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_short(path):
    name = path.relative_to(ROOT).as_posix()
    lines = page(path).splitlines()
    if name not in TABLES:
        assert len(lines) <= LINES.get(name, 200)
    if not name.startswith(("tests/golden/", "tests/trained")):
        assert [x for x in lines if len(x) > 100 and not x.startswith("|")] == []


def options_by_command():
    """{command: options that a page gives it}, of commands that have `--help`."""
    found = {}
    command = r"(?:-m )?(?:recipes|weights)[\w./]*"
    pattern = rf"python3? ({command})((?: (?!#)[^`\n#|]*)?)"
    for path in PAGES:
        for command, rest in re.findall(pattern, page(path)):
            options = re.findall(r"(?<![\w-])--([a-z][a-z-]*)", rest)
            found.setdefault(command, set()).update(options)
    return {command: options for command, options in found.items() if options}


COMMANDS = options_by_command()


def known_options():
    """Options of all commands: fields of settings, and those of `argparse`."""
    found = set()
    for room in ("recipes", "weights", "tests/__main__.py", ".github/site"):
        for path in [*(ROOT / room).rglob("*.py")] or [ROOT / room]:
            for node in ast.walk(ast.parse(page(path))):
                if isinstance(node, ast.AnnAssign) and room == "recipes":
                    found.add("--" + ast.unparse(node.target).replace("_", "-"))
                elif isinstance(node, ast.Constant):
                    found.add(str(node.value))
    return found | {option.replace("--", "--no-") for option in found}


@pytest.mark.slow
def test_options_in_texts_and_tables_exist():
    text = "".join(map(page, PAGES))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert named - known_options() == OF_OTHERS


def commands():
    """{file of a recipe: arguments that a page gives it}, but the presets' table."""
    found = {}
    for path in set(PAGES) - {ROOT / "recipes/PRESETS.md"}:
        text = page(path).replace("\\\n", " ")
        for name, rest in re.findall(
            r"python3? (recipes/\w+\.py)((?: (?!#)[^`'\"\n#|&>]*)?)", text
        ):
            # What stands for others.
            if not re.search(r"[…\[\]<$]|--help|FORMAT", rest):
                found.setdefault(name, set()).add(" ".join(rest.split()))
    return found


class Parsed(Exception):
    """The arguments of a command are right."""


def test_the_pages_give_options():
    assert {"recipes/finetune.py", "recipes/pretrain.py"} <= COMMANDS.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_options_of_a_command_exist(command, monkeypatch, capsys):
    name = command.removeprefix("-m ")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    run = runpy.run_path if name.endswith(".py") else runpy.run_module
    with pytest.raises(SystemExit) as stopped:
        run(name, run_name="__main__")
    assert not stopped.value.code
    known = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", capsys.readouterr().out))
    known |= {option.removeprefix("no-") for option in known}
    assert sorted(COMMANDS[command] - known) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", sorted(commands()))
def test_the_values_of_a_command_are_right(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    command_line = importlib.import_module("command.command_line")

    def stopped(parse):
        def parsed(*positional, **named):
            parse(*positional, **named)
            raise Parsed

        return parsed

    for parse in ("parse", "parse_options"):
        real = getattr(command_line, parse)
        monkeypatch.setattr(command_line, parse, stopped(real))
    monkeypatch.chdir(ROOT)
    for arguments in sorted(commands()[name]):
        monkeypatch.setattr(sys, "argv", [name, *arguments.split()])
        with pytest.raises((Parsed, SystemExit)) as ended:  # `reproduce.py list` exits
            runpy.run_path(name, run_name="__main__")
        assert not getattr(ended.value, "code", 0), arguments
