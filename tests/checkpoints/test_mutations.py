"""Mutated files give the right model or a `ValueError`.

A seed determines each; `python -m tests.checkpoints.mutations SEED 1` loads one.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.checkpoints import mutations
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
MANY, CHUNK = 10_000, 500  # one process for each chunk, to limit its memory


def test_some_mutations(tmp_path):
    outcomes = mutations.run(100_000, 60, tmp_path)
    assert not outcomes["failed"], outcomes["failed"]
    assert outcomes["loaded"] and outcomes["refused"]


def chunk(first):
    """Outcomes of a chunk in a separate process."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.checkpoints.mutations", f"{first}", f"{CHUNK}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    lines = result.stdout.splitlines()
    if result.returncode or not lines:
        why = f"the process of seeds {first} to {first + CHUNK - 1} ended: "
        return {"failed": {first: f"{why}{result.returncode}"}}
    return json.loads(lines[-1])


@pytest.mark.long
def test_ten_thousand_mutations():
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        found = list(workers.map(chunk, range(0, MANY, CHUNK)))
    failed = {seed: why for one in found for seed, why in one["failed"].items()}
    assert not failed, "\n".join(f"seed {s}: {why}" for s, why in failed.items())
    loaded, refused = (sum(one[k] for one in found) for k in ("loaded", "refused"))
    assert loaded + refused == MANY and loaded > MANY / 20 < refused
