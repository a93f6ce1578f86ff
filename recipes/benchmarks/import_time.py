"""Measures `import`: the seconds that kerasvit adds to `import keras`."""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from .results import Result
from .settings import Config
from .timing import SPREAD, in_turns, spread


def measure(config: Config, backend: str) -> Result:
    """Times new processes that import Keras without and with kerasvit."""
    times = in_turns(imports(backend), config)
    alone, _ = times.values()
    rows = []
    for name, seconds in times.items():
        more = statistics.median(b - a for a, b in zip(alone, seconds, strict=True))
        row = [name, *spread(seconds), "" if seconds is alone else f"{more:.3f}"]
        rows.append(row)
    return Result.of(config, backend, [*SPREAD, "median more"], rows, times)


def imports(backend: str) -> dict[str, Callable]:
    """Returns {name: step}; a step runs a new process with the imports of the name."""

    def run(code):
        environment = {**os.environ, "KERAS_BACKEND": backend}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    return {
        "keras": lambda: run("import keras"),
        "keras, kerasvit": lambda: run("import keras, kerasvit"),
    }
