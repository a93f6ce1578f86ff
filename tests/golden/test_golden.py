"""Every recorded activation, block by block, on the current backend."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.once import long_elsewhere

from .result import Result
from .runner import FAMILIES, check_case, read_manifest

RANDOM = (
    keras.initializers.VarianceScaling,
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
)
ROOT = Path(__file__).parent
CASES = read_manifest(ROOT)


@pytest.fixture
def precise(name):
    """float64 on TensorFlow, where Keras has it: a wrong epsilon is 1e-4 off."""
    kind = CASES[name]["kind"]
    if keras.backend.backend() == "tensorflow" and kind in {*FAMILIES, "analysis"}:
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.mark.usefixtures("precise")
@pytest.mark.parametrize("name", CASES)
def test_case(name, monkeypatch):
    if CASES[name]["kind"] in FAMILIES:
        # All values come from the checkpoint: no random initial values.
        for kind in RANDOM:
            monkeypatch.setattr(kind, "__call__", None)
    for label, outcome in check_case(ROOT, name, CASES[name]):
        assert isinstance(outcome, Result), f"{label}: {outcome}"
        assert outcome.wrong is None, f"{label}: {outcome}"


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tests.golden", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        cwd=ROOT.parents[1],
    )


@pytest.mark.only_on("tensorflow", reason="test_case computes in float32")
@pytest.mark.parametrize(
    "name", ["vit_token", "analysis_mlp", pytest.param("", marks=pytest.mark.long)]
)
def test_float32(name):
    """The name of one case, or "" for all."""
    cases = {name: CASES[name]} if name else CASES
    for case, found in cases.items():
        for label, outcome in check_case(ROOT, case, found):
            assert isinstance(outcome, Result), f"{label}: {outcome}"
            assert outcome.wrong is None, f"{label}: {outcome}"


@long_elsewhere
def test_command_names_the_first_wrong_block_and_what_is_not_built(tmp_path):
    import json
    import shutil

    import numpy as np

    case = "vit_token"
    shutil.copytree(ROOT / "models" / case, tmp_path / "models" / case)
    expected = tmp_path / CASES[case]["files"]["expected"]
    with np.load(expected) as arrays:
        changed = dict(arrays)
    for quantity in ("block1_f64", "logits_f64"):
        changed[quantity] = changed[quantity] + 0.01
    np.savez(expected, **changed)
    manifest = {"cases": {case: CASES[case], "new": {"kind": "unheard_of"}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    result = run(str(tmp_path))
    assert result.returncode == 1
    assert "first wrong: block1" in result.stdout
    assert "kind unheard_of is not built yet" in result.stdout
    assert result.stdout.rstrip().endswith("0 passed, 1 failed, 1 skipped")
