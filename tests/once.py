"""Runs work once: on one of the backends, or in one worker of pytest-xdist."""

import importlib.util
import os

import keras
import pytest
from filelock import FileLock


def last_backend():
    """The last installed backend, for tests that do not depend on the backend."""
    backends = ("tensorflow", "jax", "torch")
    return [name for name in backends if importlib.util.find_spec(name)][-1]


ALIKE = "alike on all backends; tried on the last"
# Marks tests whose result is the same on all backends; fixtures call
# `skip_where_alike`.
on_last_backend = pytest.mark.skipif(
    keras.backend.backend() != last_backend(), reason=ALIKE
)

# Marks tests that run on the last backend, and on the others with `--long`. They train
# models whose layers have tests of their gradients on all backends.
long_elsewhere = (
    pytest.mark.slow if keras.backend.backend() == last_backend() else pytest.mark.long
)


def mainly_on_last(cases, everywhere=1):
    """Parameters: the first run on all backends, the others on the last.

    For options of which no backend knows: which layers a builder puts together, and
    what a file holds. Every layer has tests of its own on all backends.
    """
    return _marked_after(everywhere, cases, on_last_backend)


def rest_long_elsewhere(cases, everywhere=1):
    """Parameters: the first run on all backends, the others with `long_elsewhere`."""
    return _marked_after(everywhere, cases, long_elsewhere)


def _marked_after(count, cases, mark):
    cases = list(cases)
    return cases[:count] + [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case in cases[count:]
    ]


def skip_where_alike():
    """Skips the test on all backends but the last."""
    if keras.backend.backend() != last_backend():
        pytest.skip(ALIKE)


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
