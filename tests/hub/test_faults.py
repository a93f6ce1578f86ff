"""The run of faults, whole: real processes, one of which imports Keras."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_all_end_well(hub):
    command = [sys.executable, "-m", "tests.hub.faults"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT OK" not in done.stdout and done.stdout.count("\nok ") > 30
