"""Runs work once: on one of the backends, or in one worker of pytest-xdist."""

import importlib.util
import os

import keras
import pytest
from filelock import FileLock

BACKENDS = ("tensorflow", "jax", "torch")
backend = keras.backend.backend()


def last_backend():
    """The last installed backend."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)][-1]


def runs_alike():
    """Whether this process runs the tests that are alike on all backends.

    `python -m tests` lets one of its backends run them. A run of pytest runs them all.
    """
    return os.environ.get("KERASVIT_TESTS_ALIKE_ON", backend) == backend


# Marks tests whose result is the same on all backends: one backend runs them, the last
# of `python -m tests`. tests/conftest.py deselects them on the others, as it does with
# tests that have the fixture `alike`.
on_last_backend = pytest.mark.alike

# Marks tests that run on the last backend, and on the others with `--long`. They train
# models whose layers have tests of their gradients on all backends.
long_elsewhere = pytest.mark.slow if runs_alike() else pytest.mark.long


class Elsewhere(pytest.skip.Exception):
    """Of a module without tests on this backend, which tests/conftest.py leaves out."""


def elsewhere(reason):
    """Ends the import of a module that has no tests on this backend."""
    raise Elsewhere(reason, allow_module_level=True)


def mainly_on_last(cases, everywhere=1):
    """Parameters: the first run on all backends, the others on the last.

    For options of which no backend knows: which layers a builder puts together, and
    what a file holds. Every layer has tests of its own on all backends.
    """
    return _marked_after(everywhere, cases, on_last_backend)


def rest_long_elsewhere(cases, everywhere=1):
    """Parameters: the first run on all backends, the others with `long_elsewhere`."""
    return _marked_after(everywhere, cases, long_elsewhere)


def rest_long(cases, short=1):
    """Parameters: the first run, the others with `--long`, wherever they run."""
    return _marked_after(short, cases, pytest.mark.long)


def _marked_after(count, cases, mark):
    cases = list(cases)
    return cases[:count] + [_marked(case, mark) for case in cases[count:]]


def _marked(case, mark):
    if hasattr(case, "marks"):  # of pytest.param
        return pytest.param(*case.values, marks=[*case.marks, mark], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)


def once(tmp_path_factory, name, work):
    """A folder in which the first worker has called `work(folder)`."""
    top = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent  # the workers' common folder
    folder = top / name
    with FileLock(top / f"{name}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            work(folder)
            (folder / "done").touch()
    return folder
