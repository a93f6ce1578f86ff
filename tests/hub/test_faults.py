"""Runs faults with real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .faults import BOTH, HUB

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_all_faults_are_handled(hub):
    done = subprocess.run(
        [sys.executable, "-m", "tests.hub.faults"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok     ") + 1 == 2 * len(BOTH) + len(HUB)
