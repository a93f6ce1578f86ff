"""Time kerasvit on this machine: beside other libraries, and what SAM adds.

    python recipes/benchmark.py forward     # ViT-B/16 at 224, inference
    python recipes/benchmark.py train       # ViT-S/16 at 224, one AdamW step
    python recipes/benchmark.py train --model BiTR50x1      # or any other
    python recipes/benchmark.py sam         # plain, SAM, LookSAM: seconds and memory

All contenders run in one process and take turns: a round times one step of each, and a
ratio is the median over rounds, so that a machine that slows down slows all. The
backend is that of KERAS_BACKEND; without it, `sam` takes every installed one, each in
its own process. The rivals are in rivals.py, what `sam` measures in sam_cost.py.
Measured ratios: README.md, and for `sam` kerasvit/training/README.md.
"""

import dataclasses
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclasses.dataclass(frozen=True)
class Config:
    """What to time."""

    what: Annotated[Literal["forward", "train", "sam"], tyro.conf.Positional]
    model: str | None = None
    """One of kerasvit.list_models(); default ViTB16 for forward, ViTS16 for train, and
    for sam both ViTS16 and BiTR50x1."""
    image_size: int | None = None
    """Pixels; default the model's own."""
    batch_size: int = 8
    """Images a step."""
    rounds: int | None = None
    """Timed steps of each contender; default 7, of sam 3."""
    warmup: int | None = None
    """Steps of each before, which compile; default 2, of sam 1."""
    dtype: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the Keras models; timm runs in float32 or under autocast."""
    memory_of: str | None = None
    """Of sam: only print the bytes that a row of its table takes, such as SAM."""


MODELS = {"forward": ["ViTB16"], "train": ["ViTS16"], "sam": ["ViTS16", "BiTR50x1"]}
ROUNDS = {"forward": 7, "train": 7, "sam": 3}
WARMUP = {"forward": 2, "train": 2, "sam": 1}


def main(config: Config) -> None:
    """Prints a table for each model, under `sam` and each backend."""
    if config.what == "sam" and "KERAS_BACKEND" not in os.environ:
        for backend in ("tensorflow", "jax", "torch"):
            if importlib.util.find_spec(backend):
                in_new_process(config, backend)
        return
    # Only now: the first import of Keras settles the backend of a process.
    import keras

    import kerasvit

    keras.config.set_dtype_policy(config.dtype)
    if config.model and not hasattr(kerasvit, config.model):
        sys.exit(f"There is no model {config.model!r}; see kerasvit.list_models().")
    for name in [config.model] if config.model else MODELS[config.what]:
        size = config.image_size or getattr(kerasvit, name).defaults["image_size"]
        one = dataclasses.replace(
            config,
            model=name,
            image_size=size,
            rounds=ROUNDS[config.what] if config.rounds is None else config.rounds,
            warmup=WARMUP[config.what] if config.warmup is None else config.warmup,
        )
        (sam if config.what == "sam" else compare)(one, keras.backend.backend())


def compare(config, backend):
    """Times us and other libraries, and prints our ratio to each."""
    import rivals

    times = in_turns(rivals.steps(config), config)
    table = new_table(config, backend, "kerasvit / it")
    for rival, seconds in times.items():
        ratio = statistics.median(ratios(times["kerasvit"], seconds))
        said = "" if rival == "kerasvit" else f"{ratio:.2f}"
        table.add_row(rival, *spread(seconds), said)
    Console(width=100).print(table)


def sam(config, backend):
    """Times plain steps and those of the SAM family; memory each in its own process."""
    import sam_cost

    if config.memory_of:
        print(sam_cost.most_bytes(config, config.memory_of))
        return
    peaks = {
        name: int(in_new_process(config, backend, name)) for name in sam_cost.METHODS
    }
    times = in_turns(sam_cost.steps(config), config)
    times = sam_cost.mean_over_cycles(times)
    weights = sam_cost.weight_bytes(config)
    columns = ("it / plain", "least", "most", "peak MiB", "weights more")
    table = new_table(config, backend, *columns)
    for name, seconds in times.items():
        each = ratios(seconds, times[sam_cost.PLAIN])
        numbers = (statistics.median(each), min(each), max(each))
        memory = []
        if name in peaks:
            more = (peaks[name] - peaks[sam_cost.PLAIN]) / weights
            memory = [f"{peaks[name] / 2**20:.0f}", f"{more:+.2f}"]
        table.add_row(name, *spread(seconds), *(f"{n:.2f}" for n in numbers), *memory)
    Console(width=100).print(table)


def in_turns(steps, config):
    """{name: seconds of each round}, of functions that take turns."""
    times = {name: [] for name in steps}
    for turn in range(config.warmup + config.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn >= config.warmup:
                times[name].append(time.perf_counter() - start)
    return times


def in_new_process(config, backend, memory_of=None):
    """Runs this script on a backend; with `memory_of`, returns what it prints."""
    settings = dataclasses.asdict(dataclasses.replace(config, memory_of=memory_of))
    options = [
        f"--{key}={value}"
        for key, value in settings.items()
        if key != "what" and value is not None
    ]
    # For `memory_of`: the C library gives large blocks back as soon as they are free,
    # so that the memory of the process is what its tensors need.
    free = {"MALLOC_MMAP_THRESHOLD_": "65536"} if memory_of else {}
    return subprocess.run(
        [sys.executable, __file__, config.what, *options],
        env={**os.environ, "KERAS_BACKEND": backend, **free},
        stdout=subprocess.PIPE if memory_of else None,
        text=True,
        check=True,
    ).stdout


def new_table(config, backend, *columns):
    """A table whose title says what was timed."""
    table = Table(
        title=f"{config.model} {config.what}, {config.image_size} px, batch "
        f"{config.batch_size}, {config.dtype}, {backend}, {config.rounds} rounds"
    )
    for column in ("", "median s", "least s", "most s", *columns):
        table.add_column(column, justify="left" if not column else "right")
    return table


def spread(seconds):
    """Median, least and most, as printed."""
    return [f"{f(seconds):.3f}" for f in (statistics.median, min, max)]


def ratios(seconds, others):
    """Those of each round."""
    return [a / b for a, b in zip(seconds, others, strict=True)]


if __name__ == "__main__":
    main(tyro.cli(Config))
