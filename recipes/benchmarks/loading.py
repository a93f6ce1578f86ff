"""What `load` measures: the time and memory to make a model from its file."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import keras

import kerasvit

from . import memory, rivals, timing
from .import_timm import import_timm
from .results import Result
from .settings import Config


def measure(config: Config, backend: str) -> Result:
    """Times a model from its file; the memory of each in a process of its own."""
    with model_folder(config) as folder:
        children = dataclasses.replace(config, folder=folder)
        loaders = steps(folder)
        peaks = {
            name: int(timing.in_new_process(children, backend, name))
            for name in loaders
        }
        times = timing.in_turns(loaders, config)
        size = (Path(folder) / "model.safetensors").stat().st_size
    columns = ("kerasvit / it", "peak MB", f"/ {size / 1e6:.0f} of the file")
    rows = [
        [
            name,
            *timing.spread(seconds),
            timing.ratio_to_us(times, name),
            f"{peaks[name] / 1e6:.0f}",
            f"{peaks[name] / size:.2f}",
        ]
        for name, seconds in times.items()
    ]
    return Result.of(config, backend, [*timing.SPREAD, *columns], rows)


def most_bytes(config: Config, name: str) -> int:
    """The most memory that a row's load takes, beyond what the process has already."""
    with model_folder(config) as folder:
        loaders = steps(folder)
        timing.check_row(name, loaders)
        before = memory.most_bytes(lambda: None)
        # Not below 0 where other threads free some kilobytes of earlier work meanwhile.
        return max(0, memory.most_bytes(loaders[name]) - before)


@contextlib.contextmanager
def model_folder(config: Config) -> Iterator[str]:
    """The folder given, or a temporary one of a model with fresh weights."""
    with tempfile.TemporaryDirectory() as temporary:
        if config.folder:
            yield config.folder
        else:
            model = getattr(kerasvit, config.model)(image_size=config.image_size)
            yield str(kerasvit.save_pretrained(model, temporary))


def steps(folder: str) -> dict[str, Callable]:
    """{name: step} of those who can load the folder, ours first."""
    found = {"kerasvit": lambda: ours(folder)}
    config = json.loads((Path(folder) / "config.json").read_text())
    if "architecture" in config and rivals.installed("timm"):
        found["timm"] = lambda: timm_model(Path(folder), config)
    return found


def ours(folder: str) -> keras.Model:
    """Our model, when its weights are there."""
    model = kerasvit.from_pretrained(folder)
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready([v.value for v in model.weights])
    return model


def timm_model(folder: Path, config: dict):
    """timm's model of the same file, in plain torch."""
    from safetensors.torch import load_file

    model = import_timm().create_model(
        config["architecture"],
        num_classes=config["num_classes"],
        **config["model_args"],
    )
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model
