"""The experiments that there are, without importing them: that takes seconds."""

import ast
import difflib
import importlib
from pathlib import Path

FOLDER = Path(__file__).parent
MEASURING = ("branches.py", "measures.py", "spectra.py")  # measure for several
OF_SOME = ("sizes", "shares")  # options that not all experiments have


def titles() -> dict[str, str]:
    """Returns {name: first line of the docstring} of all experiments."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [
            target.id
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        ]
        if "EXPERIMENT" in names:
            docstring = ast.get_docstring(tree) or ""
            found[path.stem.replace("_", "-")] = docstring.splitlines()[0]
    return found


def table() -> str:
    """Returns a line for each experiment: its name and its title."""
    found = titles()
    width = max(map(len, found))
    return "\n".join(f"{name:{width}}  {title}" for name, title in found.items())


def check(name: str) -> None:
    """Raises a `ValueError` for a name that no experiment has."""
    known = titles()
    if name == "list":
        raise ValueError("`list` takes no options.")
    if name not in known:
        near = difflib.get_close_matches(name, known) or known
        raise ValueError(
            f"There is no experiment {name!r}. Close: {', '.join(near)}. "
            "`reproduce.py list` prints all."
        )


def code(name: str) -> str:
    """Returns the code that measures: of the experiment, and what several share."""
    files = (f"{name.replace('-', '_')}.py", *MEASURING)
    return "".join((FOLDER / file).read_text(encoding="utf-8") for file in files)


def load(settings):
    """Returns the `Experiment` of the settings.

    Raises:
        ValueError: An option belongs to other experiments.
    """
    module = f"experiments.{settings.name.replace('-', '_')}"
    experiment = importlib.import_module(module).EXPERIMENT
    for option in OF_SOME:
        if getattr(settings, option) is not None and option not in experiment.options:
            raise ValueError(
                f"`{option}` is not an option of {settings.name}: leave it out."
            )
    return experiment
