"""The command `evaluate.py`, in processes of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.once import on_last_backend

from .test_evaluate import save, vit

pytestmark = [pytest.mark.long, on_last_backend]

ROOT = Path(__file__).parents[2]
DIGITS = [str(i) for i in range(10)]
LIMIT = 120  # seconds
LOGGED = re.compile(r"[IWE]\d{4} |WARNING: All log messages before absl")


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, ROOT / "recipes/evaluate.py", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """(exit status, output, errors)."""
    printed, errors = process.communicate(timeout=LIMIT)
    return process.returncode, printed, errors


def test_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = [f"model{i}" for i in range(6)]
    for i, name in enumerate(models):
        save(vit(i), name, DIGITS)
    command = *models, "--on", "digits", "--batch-size", "1"  # seconds per model
    process, deadline = start(*command), time.monotonic() + LIMIT
    first = tmp_path / "scores/model0/digits.json"
    while not first.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)  # in the second measurement
    process.send_signal(signal.SIGINT)
    status, printed, errors = ended(process)
    assert status == 1, f"{printed}{errors}"
    assert "Interrupted. The same command continues" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "scores/model5/digits.json").exists()
    written = first.stat().st_mtime_ns
    status, printed, errors = ended(start(*command))
    assert status == 0, errors
    assert all(f"{name}, digits, 359 images" in printed for name in models)
    assert first.stat().st_mtime_ns == written
    assert (tmp_path / "scores/scores.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("imagenet",), "put ILSVRC2012_img_val.tar, from image-net.org"),
        (("photos",), "model has none of the classes of photos: cat, dog. Its 10"),
        (("digits", "--out", "file"), "`out`: file cannot be used"),
        (("digits", "--images", "0"), "`images` must be at least 1"),
    ],
)
def test_bad_input_is_one_line(arguments, message, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", DIGITS)
    images("cat", 3)
    images("dog", 3).rename("photos")
    Path("file").touch()
    began = start("model", "--on", *arguments, TFDS_DATA_DIR=str(tmp_path / "data"))
    status, printed, errors = ended(began)
    # TensorFlow logs its start, whatever TF_CPP_MIN_LOG_LEVEL is.
    [line] = [x for x in errors.splitlines() if not LOGGED.match(x)]
    assert status == 1 and line.startswith("Error: ") and message in line
    assert "digits, 359 images" not in printed
