"""Checks the backend, and imports TensorFlow without its start-up messages.

TensorFlow reads the images on every backend. Its libraries write messages about oneDNN,
CUDA and the processor to file descriptor 2 before the log level takes effect. Run as a
script, this module copies stdin to stderr without these messages.
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
PACKAGES = (  # as they are imported: the extra `recipes` of pyproject.toml
    *("tensorflow", "tensorflow_datasets", "importlib_resources", "sklearn"),
    *("mlxtend", "matplotlib", "tyro", "rich"),
)

# Messages of level "info", in the two formats of TensorFlow's versions, and harmless
# warnings and errors about libraries that are registered twice.
NOTES = re.compile(
    rb"I\d{4} |[\d-]{10} [\d:.]+: I |To enable the following instructions: "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|.*Unable to register cu\w+ factory|.*computation placer already registered"
)


def check_packages() -> None:
    """Ends the process with one line if a package of the recipes is not installed."""
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(
            f"Error: the recipes need {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed. Type "
            '`pip install -e ".[recipes]"` in the folder of kerasvit.'
        )


def check_backend() -> None:
    """Raises a `ValueError` for a backend that is unknown or not installed."""
    name, subject = backend(), "KERAS_BACKEND is"
    if not os.environ.get("KERAS_BACKEND"):
        subject = "The backend in keras.json is"
    if name not in BACKENDS:
        raise ValueError(f"{subject} {name!r}. Expected one of {', '.join(BACKENDS)}.")
    if not importlib.util.find_spec(name):
        raise ValueError(
            f"{subject} {name!r}, which is not installed. Install it, "
            f'pip install -e ".[{name},recipes]", or choose another with KERAS_BACKEND.'
        )


def check_orbax() -> None:
    """Raises a `ValueError` if Orbax, which saves divided models, is not installed."""
    package = importlib.util.find_spec("orbax")  # other distributions are in it, too
    if not package or not importlib.util.find_spec("orbax.checkpoint"):
        raise ValueError(
            "Orbax, which saves a model that is divided among JAX devices, is not "
            'installed. Install it: pip install -e ".[orbax]".'
        )


def backend() -> str:
    """Returns the name of the backend that Keras will use, without importing Keras."""
    return os.environ.get("KERAS_BACKEND") or _configured()


def _configured():
    """Returns the backend that Keras uses without KERAS_BACKEND."""
    home = Path.home()
    folder = home / ".keras" if os.access(home, os.W_OK) else Path("/tmp/.keras")
    file = Path(os.environ.get("KERAS_HOME", folder)).expanduser() / "keras.json"
    try:
        return json.loads(file.read_text())["backend"]
    except (OSError, ValueError, KeyError, TypeError):  # as Keras does
        return "tensorflow"


def import_quietly(*modules: str) -> None:
    """Imports modules, without TensorFlow's start-up messages on stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for messages after the import
    missing = [module for module in modules if module not in sys.modules]
    if not missing:
        return
    with _filtered_stderr():
        for module in missing:
            importlib.import_module(module)


@contextlib.contextmanager
def _filtered_stderr():
    """Sends file descriptor 2 through `copy_without_notes` in another process.

    The other process outlives this one, so that messages of TensorFlow before an abort,
    such as on an unsupported processor, are shown.
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
            copier.wait(5)  # times out only if the module started a process


def copy_without_notes(lines, out) -> None:
    """Copies lines of bytes immediately, except for TensorFlow's messages."""
    for line in lines:
        if not NOTES.match(line):
            out.write(line)
            out.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    copy_without_notes(sys.stdin.buffer, sys.stderr.buffer)
