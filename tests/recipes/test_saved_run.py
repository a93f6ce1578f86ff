"""An interrupted run of version 0.1 continues on every backend."""

import json
import shutil

import finetune
import keras
import pytest

from tests.golden import saved

pytestmark = pytest.mark.slow


def test_a_stopped_run_continues(tmp_path):
    """The result equals that of the uninterrupted training of version 0.1."""
    run = saved.SAVED / f"run-{keras.backend.backend()}"
    shutil.copytree(run, tmp_path / "run")
    config = (run / "config.json").read_text()
    weights = saved.SAVED / "VisionTransformer"
    config = config.replace("WEIGHTS", str(weights.resolve()))
    (tmp_path / "run" / "config.json").write_text(config)
    result = finetune.finetune(saved.run_settings(weights, tmp_path / "run"))
    expected = json.loads((run / "expected.json").read_text())
    training = result
    assert len(training["history"]) == 2
    for name, value in expected.items():
        assert training[name] == pytest.approx(value, rel=1e-3), name
