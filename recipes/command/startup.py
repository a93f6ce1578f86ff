"""Checks the packages and the backend before the imports that take seconds."""

import ctypes
import importlib.util
import json
import os
import sys
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")
PACKAGES = (  # as they are imported: the extra `recipes` of pyproject.toml
    *("tensorflow", "tensorflow_datasets", "importlib_resources", "sklearn"),
    *("mlxtend", "matplotlib", "tyro", "rich"),
)

# TensorFlow reads the images on every backend, and logs much as it starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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


def keep_freed_memory() -> None:
    """Lets glibc keep the memory of freed tensors for the next, in this process.

    By default it gives large blocks back to the system, which clears their pages when
    they are used again. SERVE.md has what that takes in `predict` and `fit`.
    """
    trim_threshold, mmap_threshold = -1, -3  # of malloc.h
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):  # musl has none
        library.mallopt(mmap_threshold, 2**25)  # the most that it takes
        library.mallopt(trim_threshold, 2**31 - 1)


def backend() -> str:
    """Returns the name of the backend that Keras will use, without importing Keras."""
    return os.environ.get("KERAS_BACKEND") or _configured()


def _configured():
    """Returns the backend that Keras uses without KERAS_BACKEND."""
    home = Path(os.path.expanduser("~"))
    folder = home / ".keras" if os.access(home, os.W_OK) else Path("/tmp/.keras")
    file = Path(os.path.expanduser(os.environ.get("KERAS_HOME", folder)), "keras.json")
    try:
        return json.loads(file.read_text("utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError):  # as Keras does
        return "tensorflow"
