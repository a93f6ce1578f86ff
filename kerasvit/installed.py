"""Whether the backend of Keras, and the packages of an extra, are installed."""

import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .version import __version__

BACKENDS = ("tensorflow", "jax", "torch")
INFERENCE = "openvino"  # a backend without training
KERAS = "3.15"  # the oldest of pyproject.toml
# What else a report of a fault names, as it is imported.
_NEEDED = ("keras", "numpy", "ml_dtypes", "huggingface_hub", "safetensors", "PIL")
_OPTIONAL = (
    *("jaxlib", "tensorflow_datasets", "timm", "transformers", "peft"),
    *("onnx", "onnxruntime", "ai_edge_litert", "nncf"),
)


def is_reporting() -> bool:
    """Returns whether `python -m kerasvit` is importing the package."""
    return sys.argv == ["-m"] and sys.orig_argv[-2:] == ["-m", "kerasvit"]


@functools.cache  # once, before or after the imports
def write_versions() -> None:
    """Writes the versions of Python and the packages, as lines of Markdown.

    It imports none of them: what does not import is often of a wrong version.
    """
    name, origin = backend()
    found = importlib.metadata.packages_distributions()

    def listed(packages: Sequence[str]) -> str:
        known = [
            f"{each} {importlib.metadata.version(found[each][0])}"
            for each in packages
            if each in found
        ]
        return ", ".join(known) or "none"

    lines = (
        f"kerasvit {__version__}, Python {platform.python_version()}, "
        f"{platform.platform()}",
        f"packages: {listed(_NEEDED)}",
        f"backend: {name}, {origin}",
        f"installed backends: {listed((*BACKENDS, INFERENCE))}",
        f"optional packages: {listed(_OPTIONAL)}",
    )
    sys.stdout.write("".join(f"- {line}\n" for line in lines))
    sys.stdout.flush()  # before a traceback


def check_keras() -> None:
    """Checks the version of Keras before its import, in which an old one fails.

    Raises:
        ImportError: Keras is older than pyproject.toml allows.
    """
    try:
        found = importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:
        return  # a preview has another name
    numbers = [[int(n) for n in version.split(".")[:2]] for version in (found, KERAS)]
    if numbers[0] < numbers[1]:
        raise ImportError(
            f"kerasvit needs Keras {KERAS} or newer; {found} is installed. Type "
            f'`pip install "keras>={KERAS}"`.'
        )


def check_backend() -> None:
    """Checks the backend before Keras is imported, whose own error is of an inner file.

    Raises:
        ImportError: The backend is unknown or not installed, or Keras's settings are no
            dictionary. An installed backend may still fail to import: its own error is
            the better one.
    """
    if "keras" in sys.modules:
        return
    file = _settings_file()
    if not isinstance(_settings(file), dict):  # whatever decides the backend
        raise ImportError(
            f"{from_home(file)} must have a dictionary, such as "
            '{"backend": "jax"}. Correct it, or delete it for the defaults of Keras.'
        )
    name, origin = backend()
    known = (*BACKENDS, INFERENCE)
    if name in known and _has(name):
        return
    installed = [each for each in BACKENDS if _has(each)]
    fault = f"{name} is not installed"
    if name not in known:
        fault = f"kerasvit runs on {', '.join(BACKENDS)}, and predicts on {INFERENCE}"
    if installed:
        remedy = " or ".join(f"`{_chosen(each)}`" for each in installed)
        remedy = f"Installed: {', '.join(installed)}. Type {remedy}"
    else:
        wanted = name if name in BACKENDS else "jax"
        remedy = f"No backend is installed. Type {_command(wanted)}"
    raise ImportError(f"Keras's backend is {name!r}, {origin}, but {fault}. {remedy}.")


def check_extra(extra: str, packages: Sequence[str]) -> None:
    """Raises an `ImportError` if packages of an extra of kerasvit are not installed.

    Args:
        extra: Name of the extra in pyproject.toml, which is that of a module, too.
        packages: Its packages, as they are imported.
    """
    missing = [package for package in packages if not _has(package)]
    if missing:
        raise ImportError(
            f"kerasvit.{extra} needs {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed. Type "
            f"{_command(extra)}."
        )


def backend() -> tuple[str, str]:
    """Returns the backend that Keras takes, and what decided it; imports nothing."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name, "by KERAS_BACKEND"
    file = _settings_file()
    if not file.exists():
        return "tensorflow", "its default"
    settings = _settings(file)
    if not isinstance(settings, dict) or "backend" not in settings:
        return "tensorflow", f"its default, as {from_home(file)} names none"
    return settings["backend"], f"by {from_home(file)}"


def _settings_file() -> Path:
    """Returns the path of the settings that Keras reads."""
    home = Path(os.path.expanduser("~"))
    folder = home / ".keras" if os.access(home, os.W_OK) else Path("/tmp/.keras")
    return Path(os.path.expanduser(os.environ.get("KERAS_HOME", folder)), "keras.json")


def _settings(file: Path) -> Any:
    """Returns the settings; none of a file that is not there, and that is no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def from_home(path: Path) -> str:
    """Returns a path with "~" for the home directory, unless that is the root."""
    home = Path(os.path.expanduser("~"))
    if home == home.parent or not path.is_relative_to(home):
        return str(path)
    return str(Path("~", path.relative_to(home)))


def _chosen(backend: str) -> str:
    """Returns the command of the shell that chooses a backend."""
    if os.name == "nt":  # PowerShell
        return f"$env:KERAS_BACKEND='{backend}'"
    return f"export KERAS_BACKEND={backend}"


def _command(extra: str) -> str:
    """Returns the command that installs an extra of this kerasvit."""
    if Path(__file__).parents[1].joinpath("pyproject.toml").is_file():  # a checkout
        return f'`pip install -e ".[{extra}]"` in the folder of kerasvit'
    return f'`pip install "kerasvit[{extra}]"`'


def _has(package: str) -> bool:
    # A module that is a stand-in may have no specification.
    loaded = sys.modules.get(package) is not None
    return loaded or importlib.util.find_spec(package) is not None
