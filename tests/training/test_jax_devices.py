"""SAM on several JAX devices, and the layout map, by the cases in jax_devices.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once import once
from tests.training.jax_devices import CASES, LONG_CASES

pytestmark = [
    pytest.mark.waits_for("jax_devices"),
    pytest.mark.slow,
    pytest.mark.only_on("jax", reason="keras.distribution is for JAX"),
]


def failures(cases, tmp_path_factory):
    """{case: traceback or None}, in a process that sets JAX's devices at its start."""

    def on_four_devices(folder):
        # The last of two equal flags applies. Most of the time is compilation.
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
        module = "tests.training.jax_devices"
        done = subprocess.run(
            [sys.executable, "-m", module, folder / "failures.json", *cases],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    name = "long_cases_of_jax_devices" if cases is LONG_CASES else "jax_devices"
    folder = once(tmp_path_factory, name, on_four_devices)
    return json.loads((folder / "failures.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_on_several_devices(name, tmp_path_factory):
    failure = failures(CASES, tmp_path_factory)[name]
    assert failure is None, failure


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_CASES)
def test_on_several_devices_in_more_cases(name, tmp_path_factory):
    failure = failures(LONG_CASES, tmp_path_factory)[name]
    assert failure is None, failure
