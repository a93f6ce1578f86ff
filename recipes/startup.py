"""The backend of a recipe, and the import of TensorFlow without its start-up notes.

TensorFlow reads the images on every backend. Its libraries write notes about oneDNN,
CUDA and the processor to file descriptor 2 before any log level counts. Run as a
script, this module copies stdin to stderr without these notes.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")

# Notes of level "info", in the two formats that TensorFlow has had, and three warnings
# and errors that say nothing: its libraries register the same thing twice.
NOTES = re.compile(
    rb"I\d{4} |[\d-]{10} [\d:.]+: I |To enable the following instructions: "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|.*Unable to register cu\w+ factory|.*computation placer already registered"
)


def check_backend() -> None:
    """Raises a `ValueError` for a backend that is unknown or not installed."""
    name = os.environ.get("KERAS_BACKEND")
    subject = "KERAS_BACKEND is"
    if not name:
        name, subject = _configured(), "The backend in keras.json is"
    if name not in BACKENDS:
        raise ValueError(f"{subject} {name!r}. Expected one of {', '.join(BACKENDS)}.")
    if not importlib.util.find_spec(name):
        raise ValueError(
            f"{subject} {name!r}, which is not installed. Install it, "
            f'pip install -e ".[{name},recipes]", or choose another with KERAS_BACKEND.'
        )


def check_reader() -> None:
    """Raises a `ValueError` where what reads the images is not installed."""
    if not importlib.util.find_spec("tensorflow"):
        raise ValueError(
            "TensorFlow, which reads the images on every backend, is not installed. "
            'Install it: pip install -e ".[recipes]".'
        )


def _configured():
    """What Keras takes where KERAS_BACKEND is not set."""
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    try:
        return json.loads((Path(home) / "keras.json").read_text())["backend"]
    except (OSError, ValueError, KeyError, TypeError):  # as Keras does
        return "tensorflow"


def import_quietly(*modules: str) -> None:
    """Imports modules; everything but TensorFlow's notes reaches stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # of notes after the import
    missing = [module for module in modules if module not in sys.modules]
    if not missing:
        return
    with _filtered_stderr():
        for module in missing:
            importlib.import_module(module)


@contextlib.contextmanager
def _filtered_stderr():
    """Sends file descriptor 2 through `copy_without_notes`, in a process of its own.

    The other process outlives this one: what TensorFlow writes before it aborts, as
    on a processor that it does not support, is still seen.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    copier = subprocess.Popen([sys.executable, "-SE", __file__], stdin=subprocess.PIPE)
    os.dup2(copier.stdin.fileno(), 2)
    copier.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            copier.wait(5)  # longer only if the module left a process behind


def copy_without_notes(lines, out) -> None:
    """Copies lines of bytes as they come, without TensorFlow's notes."""
    for line in lines:
        if not NOTES.match(line):
            out.write(line)
            out.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the other process
    copy_without_notes(sys.stdin.buffer, sys.stderr.buffer)
