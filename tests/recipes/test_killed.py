"""A training that is killed continues with the weights of the uninterrupted one."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pretrain
import pytest
from training import step_log

from . import small_training
from .small_training import last_state

SCRIPT = Path(small_training.__file__)
LIMIT = 600  # seconds for a process
KILLS = 30


def start(run, *arguments):
    backend = keras.backend.backend()
    return subprocess.Popen(
        [sys.executable, SCRIPT, run, *map(str, arguments)],
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": str(SCRIPT.parents[2]),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, limit=LIMIT):
    """The exit status of a process, which is killed after the limit."""
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors[-3000:]
    return process.returncode


def trained(run, *arguments):
    assert ended(start(run, *arguments)) == 0
    return run


def wait_for_writes(process, file, count):
    """Waits until a process has written a file so many times."""
    deadline = time.monotonic() + LIMIT
    last = file.stat().st_mtime_ns if file.exists() else None
    while count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
        now = file.stat().st_mtime_ns if file.exists() else None
        if now != last:
            last, count = now, count - 1


def check_whole(run):
    """Checks that the files that a training reads are whole, after it was killed."""
    for file in (run / "with_SAM").glob("state_*.npz"):
        with np.load(file) as state:
            assert all(state[name] is not None for name in state.files)
    for file in (run / "config.json", run / "result.json"):
        if file.exists():
            json.loads(file.read_text())
    with (run / "log_with_SAM.csv").open() as file:
        assert next(csv.reader(file)) == list(step_log.COLUMNS)
    return last_state(run)


@pytest.mark.long
def test_a_killed_training_continues(tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert ended(start(run, 0, 2, 5)) == -signal.SIGKILL
    assert check_whole(run) == 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
        patch.setattr(pretrain, "make_optimizer", small_training.optimizer)
        for out, minutes in ((whole, 10.0), (run, 0.0)):
            pretrain.pretrain(small_training.settings(out, minutes, epochs=2))
    small_training.check_same(whole, run)


@pytest.mark.long
def test_killed_between_steps(tmp_path):
    whole = trained(tmp_path / "whole", 10, 2)
    run = tmp_path / "run"
    for minutes, step in ((0, 4), (0, 5), (10, 13)):
        assert ended(start(run, minutes, 2, step)) == -signal.SIGKILL
        check_whole(run)
    trained(run, 0, 2)
    small_training.check_same(whole, run)


@pytest.mark.long
def test_killed_at_random_moments(tmp_path):
    """Ends 30 processes, at any moment of training and saving."""
    draw = random.Random(0)
    options = (0, 30)  # it saves after each of 300 steps
    whole = trained(tmp_path / "whole", *options)
    run = tmp_path / "run"
    kills, finished, steps = 0, 0, set()
    while kills < KILLS:
        process = start(run, *options)
        # It writes the log after it restored the state, and after each step.
        wait_for_writes(process, run / "log_with_SAM.csv", draw.randint(1, 9))
        if ended(process, draw.uniform(0, 1)) == 0:
            small_training.check_same(whole, run)
            finished += 1
            run = tmp_path / f"run_{finished}"
            continue
        kills += 1
        steps.add(check_whole(run))
    trained(run, *options)
    small_training.check_same(whole, run)
    assert len(steps) >= KILLS // 2  # in the others, no step was saved
