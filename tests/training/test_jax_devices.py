"""SAM on several JAX devices, and the layout map, by the cases in jax_devices.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.once import once
from tests.training.jax_devices import CASES

pytestmark = [
    pytest.mark.waits_for("jax_devices"),
    pytest.mark.slow,
    pytest.mark.skipif(
        keras.backend.backend() != "jax", reason="keras.distribution is for JAX"
    ),
]


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """{case: traceback, or None}; JAX must know of its devices when it starts."""
    path = once(tmp_path_factory, "jax_devices", on_four_devices) / "failures.json"
    return json.loads(path.read_text(encoding="utf-8"))


def on_four_devices(folder):
    # A flag that is there twice counts as the last says; compiling is what takes time.
    flags = (
        "--xla_backend_optimization_level=0",
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=4",
    )
    environment = {
        **os.environ,
        "XLA_FLAGS": " ".join(flags),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.jax_devices", folder / "failures.json"],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CASES)
def test_on_several_devices(name, failures):
    assert failures[name] is None, failures[name]
