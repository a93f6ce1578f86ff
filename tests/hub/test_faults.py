"""Runs faults with real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .faults import BOTH, HUB

pytestmark = pytest.mark.slow
# The others are about sentences: the rest of this folder tests these one by one.
SHORT = ("kill", "full disk", "cut short, always", "two processes")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "words", [SHORT, pytest.param((), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_faults_are_handled(words, hub):
    done = subprocess.run(
        [sys.executable, "-m", "tests.hub.faults", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    def count(names):
        return sum(not words or any(word in name for word in words) for name in names)

    found = done.stdout.count("\nok     ") + done.stdout.startswith("ok")
    assert found == 2 * count(BOTH) + count(HUB)
