"""The tasks of VTAB-1k that a command asks for, and whether they can be prepared.

    choice.tasks(["vtab/natural", "vtab/kitti"])      # eight tasks

This module imports neither Keras nor TensorFlow, so that a command is checked first.
"""

import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from command import reachable
from command.names import check_name, data_location, located

from .catalogue import GROUPS, NAME, TASKS, Source, VtabTask

INSTALLED_AS = {"cv2": "opencv-python-headless"}


def has(name: str) -> bool:
    """Returns whether a name of `--on` is one of VTAB, and no file or folder."""
    return name.split("/")[0] == NAME and not Path(name).expanduser().exists()


def tasks(names: Sequence[str]) -> list[VtabTask]:
    """Returns the tasks among the names of `--on`, each once.

    Args:
        names: "vtab", "vtab/natural" (a group), "vtab/dtd" (a task), or others, which
            are left out.

    Raises:
        ValueError: A name begins with "vtab/" and is neither a task nor a group.
    """
    known = {NAME: list(TASKS), **GROUPS, **{name: [name] for name in TASKS}}
    own = [name for name in names if has(name)]
    for name in own:
        check_name("on", name, known)
    found = {each for name in own for each in known[name]}
    return [task for name, task in TASKS.items() if name in found]


def check(wanted: Sequence[VtabTask]) -> None:
    """Raises a `ValueError` that lists the tasks which cannot be prepared, and why."""
    sources = {task.source for task in wanted}
    with ThreadPoolExecutor(len(TASKS)) as pool:  # a server may not answer
        problems = dict(zip(sources, pool.map(_problem, sources), strict=True))
    wrong = [task for task in wanted if problems[task.source]]
    if not wrong:
        return
    lines = [f"`on`: {len(wrong)} of {len(wanted)} tasks of VTAB cannot be prepared:"]
    lines += [f"  {task.set}: {problems[task.source]}" for task in wrong]
    lines.append(
        "Prepare them where the files are and servers answer, such as\n"
        '    python -c "import tensorflow_datasets as t; '
        f't.load({wrong[0].source.tfds!r})"\n'
        f"and copy their folders into {data_location()}."
    )
    if rest := " ".join(task.set for task in wanted if task not in wrong):
        lines.append(f"The others can be scored: --on {rest}")
    raise ValueError("\n".join(lines))


def _problem(source: Source) -> str:
    """Returns why a data set cannot be prepared; "" if it is or can be."""
    root = Path(data_location()).expanduser()
    if any(root.glob(f"{source.tfds}/**/dataset_info.json")):
        return ""
    if source.manual and not (root / "downloads/manual" / source.manual).exists():
        return f"{source.tfds} must be downloaded by hand: {located(source.download)}."
    if source.package and not importlib.util.find_spec(source.package):
        name = INSTALLED_AS.get(source.package, source.package)
        return (
            f"{source.tfds} cannot be prepared without a package: pip install {name}."
        )
    if hosts := reachable.missing(source.tfds):
        return f"no server that has {source.tfds} answers: {', '.join(hosts)}."
    return ""
