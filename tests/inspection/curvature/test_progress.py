"""Progress output of an eigenvalue search."""

import re
import sys

import keras
import numpy as np
import pytest

from kerasvit.inspection import Hessian, largest_eigenvalue
from kerasvit.inspection.curvature import hessian
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]


@pytest.fixture
def search():
    """A model with its data, two batches of four."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    return model, x.astype("float32"), y.astype("float32"), "mse"


def on_a_terminal(monkeypatch, quiet=0.0):
    monkeypatch.setattr(hessian, "DELAY", quiet)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


def test_batches_and_the_eigenvalue(search, capsys):
    found = largest_eigenvalue(*search, batch_size=4, verbose=1)
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert lines.endswith("\n")
    last = re.split("[\r\n\b]+", lines.strip())[-1]
    batches = int(re.search(r"(\d+)/Unknown", last)[1])
    assert batches >= 4 and batches % 2 == 0  # whole products of two batches each
    assert f"eigenvalue: {found:.4f}" in last and "relative residual: " in last
    assert "s/batch" in last


@pytest.mark.parametrize(
    ("verbose", "terminal", "quiet", "shows"),
    [("auto", True, 0, True), ("auto", True, 60, False), (0, True, 0, False)]
    + [("auto", False, 0, False), (1, False, 60, True)],
)
def test_when(search, monkeypatch, capsys, verbose, terminal, quiet, shows):
    if terminal:
        on_a_terminal(monkeypatch, quiet)
    Hessian(*search).eigenpairs(verbose=verbose)
    assert bool(capsys.readouterr().out) == shows


def test_keras_s_switch_counts(search, monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    logging = keras.config.is_interactive_logging_enabled()
    keras.config.disable_interactive_logging()
    try:
        largest_eigenvalue(*search)
    finally:
        if logging:
            keras.config.enable_interactive_logging()
    assert not capsys.readouterr().out


@pytest.mark.parametrize("verbose", [2, "yes", None, -1])
def test_verbose_is_checked(search, verbose):
    with pytest.raises(ValueError, match='`verbose` must be "auto", 0 or 1. Received'):
        largest_eigenvalue(*search, verbose=verbose)
    with pytest.raises(ValueError, match="`verbose` must be"):
        Hessian(*search).eigenpairs(verbose=verbose)
