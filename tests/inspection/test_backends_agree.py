"""The same call of a tool returns the same numbers on every backend, to 1e-4."""

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from tests.inspection.every_tool import CLASSES, SIZE
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend

pytestmark = [pytest.mark.long, on_last_backend]

BACKENDS = [
    name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of all backends, in one folder for each family."""
    folder = tmp_path_factory.mktemp("families")
    for name in TINY:
        model = tiny(name, image_size=SIZE, num_classes=CLASSES)
        kerasvit.save_pretrained(model, folder / name / "model")
    for backend in BACKENDS:
        subprocess.run(
            [sys.executable, "-m", "tests.inspection.every_tool", str(folder)],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=Path(__file__).parents[2],
            check=True,
        )
    return folder


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("pair", [*itertools.combinations(BACKENDS, 2)])
def test_every_tool_agrees(family, pair, folder):
    """Differences are relative to the largest entry of an array.

    Of an eigenvector the sign is that of its largest entry, which is made positive.
    Residuals and numbers of products, which follow rounding errors, are left out.
    """
    found, others = (np.load(folder / family / f"{name}.npz") for name in pair)
    assert found.keys() == others.keys()
    apart = {}
    for name in found:
        one, other = (each[name].astype("float64") for each in (found, others))
        assert one.shape == other.shape, name
        finite = np.isfinite(one)
        assert (one[~finite] == other[~finite]).all(), name
        scale = abs(one[finite]).max(initial=0)
        difference = abs(one - other)[finite].max(initial=0)
        if difference > 1e-4 * scale:
            apart[name] = difference / scale
    assert not apart
