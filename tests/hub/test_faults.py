"""The part of the run of faults that only real processes can show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ("kill -9", "two processes", "may not be written")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_all_end_well(hub):
    command = [sys.executable, "-m", "tests.hub.faults", *WORDS]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT OK" not in done.stdout and done.stdout.count("ok     ") == 6
