"""Runs one measurement: `python -m recipes.benchmarks WHAT`."""

import dataclasses
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from command import command_line, startup

from . import results, settings, timing

MEASUREMENTS = {  # {command: module that defines `measure`}
    "forward": "libraries",
    "train": "libraries",
    "sam": "sam_cost",
    "load": "loading",
    "import": "loading",
    "data": "input_pipeline",
    "quantization": "quantization",
    "int8": "exported",
    "simulate": "simulated",
    "hessian": "hessian_cost",
    "serve": "serve_cost",
}


def main(config: settings.Config) -> None:
    """Prints and saves a table for each model, and for each backend if none is set."""
    if config.what == "results":
        print(results.collect(Path(config.folder or results.FOLDER)))
        return
    counts = settings.counts(config)
    if "KERAS_BACKEND" not in os.environ and config.what in settings.ON_EVERY_BACKEND:
        on_every_backend(config)
        return
    # JAX and TensorFlow reserve most of a GPU: other processes have too little.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # Imported late: it takes seconds, and fixes the backend of the process.
    import keras

    import kerasvit

    keras.config.set_dtype_policy(config.dtype)
    module = importlib.import_module(f"{__package__}.{MEASUREMENTS[config.what]}")
    if config.what in settings.OF_A_TRAINING:  # not of a variant
        config = dataclasses.replace(config, **counts)
        results.show(module.measure(config, keras.backend.backend()))
        return
    default = settings.MODELS.get(config.what, ("ViTB16",))
    for name in config.model or default:
        size = config.image_size or getattr(kerasvit, name).defaults["image_size"]
        one = dataclasses.replace(config, model=(name,), image_size=size, **counts)
        if config.memory_of:
            print(module.most_bytes(one, config.memory_of))
        else:
            results.show(module.measure(one, keras.backend.backend()))


def on_every_backend(config: settings.Config) -> None:
    """Runs the command on each installed backend, also if one of them fails."""
    failed = []
    for backend in startup.BACKENDS:
        if importlib.util.find_spec(backend):
            try:
                printed = timing.in_new_process(config, backend, config.memory_of)
            except subprocess.CalledProcessError:
                failed.append(backend)
            else:
                print(end=f"{backend}: {printed}" if printed else "")
    if failed:
        sys.exit(f"It failed on {' and '.join(failed)}; the reasons are above.")


if __name__ == "__main__":
    command_line.main(lambda: main(settings.read(sys.argv[1:])))
