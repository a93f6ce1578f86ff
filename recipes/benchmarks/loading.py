"""Measures `load` and `import`.

`load` is the time and memory to build a model and load its file, `import` the seconds
that kerasvit adds to `import keras`.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
from training import dry_run

import kerasvit

from . import rivals, timing
from .import_timm import timm_model
from .keras_steps import kerasvit_model
from .results import Result
from .settings import Config


def measure(config: Config, backend: str) -> Result:
    """Times loading, and measures the memory of each in a separate process.

    For `import`, times new processes that import Keras without and with kerasvit.
    """
    if config.what == "import":
        return measure_import(config, backend)
    with model_folder(config) as folder:
        children = dataclasses.replace(config, folder=folder)
        loaders = steps(folder)
        peaks = {
            name: int(timing.in_new_process(children, backend, name))
            for name in loaders
        }
        times = timing.in_turns(loaders, config)
        size = (Path(folder) / "model.safetensors").stat().st_size
    columns = ("kerasvit / it", "95 %", "peak MB", f"/ {size / 1e6:.0f} of the file")
    rows = [
        [
            name,
            *timing.spread(seconds),
            *timing.ratio(times["kerasvit"], None if name == "kerasvit" else seconds),
            f"{peaks[name] / 1e6:.0f}",
            f"{peaks[name] / size:.2f}",
        ]
        for name, seconds in times.items()
    ]
    return Result.of(config, backend, [*timing.SPREAD, *columns], rows, times)


def most_bytes(config: Config, name: str) -> int:
    """Returns the peak memory of a row's load, above the memory before, in bytes."""
    with model_folder(config) as folder:
        loaders = steps(folder)
        timing.check_row(name, loaders)
        before = dry_run.most_bytes(lambda: None)
        # At least 0: other threads may free some kilobytes of earlier work meanwhile.
        return max(0, dry_run.most_bytes(loaders[name]) - before)


@contextlib.contextmanager
def model_folder(config: Config) -> Iterator[str]:
    """Yields the given folder, or a temporary one of a model with fresh weights."""
    with tempfile.TemporaryDirectory() as temporary:
        if config.folder:
            yield config.folder
        else:
            model = kerasvit_model(config)
            yield str(kerasvit.save_pretrained(model, temporary))


def steps(folder: str) -> dict[str, Callable]:
    """Returns {name: step} of the libraries that can load the folder."""
    found = {"kerasvit": lambda: load_kerasvit(folder)}
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    if "architecture" in config and rivals.installed("timm"):
        found["timm"] = lambda: timm_model(Path(folder), config)
    return found


def load_kerasvit(folder: str) -> keras.Model:
    """Loads kerasvit's model and waits for its weights."""
    model = kerasvit.from_pretrained(folder)
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready([v.value for v in model.weights])
    return model


def measure_import(config: Config, backend: str) -> Result:
    """Times new processes that import Keras without and with kerasvit."""
    times = timing.in_turns(imports(backend), config)
    alone, _ = times.values()
    rows = []
    for name, seconds in times.items():
        more = statistics.median(b - a for a, b in zip(alone, seconds, strict=True))
        row = [name, *timing.spread(seconds), "" if seconds is alone else f"{more:.3f}"]
        rows.append(row)
    return Result.of(config, backend, [*timing.SPREAD, "median more"], rows, times)


def imports(backend: str) -> dict[str, Callable]:
    """Returns {name: step}; a step runs a new process with the imports of the name."""

    def run(code):
        environment = {**os.environ, "KERAS_BACKEND": backend}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    return {
        "keras": lambda: run("import keras"),
        "keras, kerasvit": lambda: run("import keras, kerasvit"),
    }
