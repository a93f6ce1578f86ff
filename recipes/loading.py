"""What `benchmark.py load` and `import` measure: the way to a model that is there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import memory
import rivals
import startup
from import_timm import import_timm

import kerasvit


def new_folder(config, place):
    """One that timm reads too, of a model with fresh weights."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    return str(kerasvit.save_pretrained(model, place))


def file_bytes(folder):
    """Size of the weights."""
    return (Path(folder) / "model.safetensors").stat().st_size


def steps(folder):
    """{name: step} of those who can load the folder, ours first."""
    found = {"kerasvit": lambda: ours(folder)}
    config = json.loads((Path(folder) / "config.json").read_text())
    if "architecture" in config and rivals.installed("timm"):
        found["timm"] = lambda: timm_model(Path(folder), config)
    return found


def ours(folder):
    """Our model, when its weights are there."""
    model = kerasvit.from_pretrained(folder)
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready([v.value for v in model.weights])
    return model


def timm_model(folder, config):
    """timm's model of the same file, in plain torch."""
    from safetensors.torch import load_file

    model = import_timm().create_model(
        config["architecture"],
        num_classes=config["num_classes"],
        **config["model_args"],
    )
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def most_bytes(step):
    """The most memory that a step takes, over what the process has already."""
    before = memory.most_bytes(lambda: None)
    # Not below 0 where other threads free some kilobytes of earlier work meanwhile.
    return max(0, memory.most_bytes(step) - before)


def imports(backend):
    """{name: step} of new processes that import Keras, without us and with us."""

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "KERAS_BACKEND": backend},
            stderr=subprocess.PIPE,
        )
        notes = done.stderr.splitlines(keepends=True)
        startup.copy_without_notes(notes, sys.stderr.buffer)
        done.check_returncode()

    return {
        "keras": lambda: run("import keras"),
        "keras, kerasvit": lambda: run("import keras, kerasvit"),
    }
