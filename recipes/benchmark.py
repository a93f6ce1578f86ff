"""Time kerasvit on this machine: beside other libraries, and what SAM adds.

    python recipes/benchmark.py forward     # ViT-B/16 at 224, inference
    python recipes/benchmark.py train       # ViT-S/16 at 224, one AdamW step
    python recipes/benchmark.py train --model BiTR50x1      # or any other
    python recipes/benchmark.py sam         # plain, SAM, LookSAM: seconds and memory
    python recipes/benchmark.py load        # ViT-B/16 from a file: seconds and memory
    python recipes/benchmark.py import      # what we add to `import keras`

All contenders run in one process and take turns: a round times one step of each, and a
ratio is the median over rounds, so that a machine that slows down slows all. The
backend is that of KERAS_BACKEND; without it, all but `forward` and `train` take every
installed one, each in its own process. The rivals are in rivals.py, what `sam` measures
in sam_cost.py, what `load` and `import` do in loading.py. Measured: README.md, and for
`sam` kerasvit/training/README.md.
"""

import dataclasses
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import command_line
import names
import startup
import tyro
from rich.console import Console
from rich.table import Table


@dataclasses.dataclass(frozen=True)
class Config:
    """What to time."""

    what: Annotated[
        Literal["forward", "train", "sam", "load", "import"], tyro.conf.Positional
    ]
    model: str | None = None
    """One of kerasvit.list_models(); default ViTB16 for forward and load, ViTS16 for
    train, and for sam both ViTS16 and BiTR50x1."""
    image_size: int | None = None
    """Pixels; default the model's own."""
    batch_size: int = 8
    """Images a step."""
    rounds: int | None = None
    """Timed steps of each contender; default 7, of sam 3."""
    warmup: int | None = None
    """Steps of each before, which compile; default 1, of forward and train 2."""
    dtype: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the Keras models; timm runs in float32 or under autocast."""
    memory_of: str | None = None
    """Of sam and load: only print the bytes that a row of the table takes."""
    folder: str | None = None
    """Of load: one that save_pretrained wrote; default that of a new model."""


MODELS = {"train": ["ViTS16"], "sam": ["ViTS16", "BiTR50x1"]}
ROUNDS = {"sam": 3}
WARMUP = {"forward": 2, "train": 2}
ON_EVERY_BACKEND = ("sam", "load", "import")


def main(config: Config) -> None:
    """Prints a table for each model, or for each backend too."""
    counts = {
        "rounds": some(config.rounds, ROUNDS.get(config.what, 7), 1, "rounds"),
        "warmup": some(config.warmup, WARMUP.get(config.what, 1), 0, "warmup"),
    }
    if "KERAS_BACKEND" not in os.environ and config.what in ON_EVERY_BACKEND:
        on_every_backend(config)
        return
    # Only now: it takes seconds, and settles the backend of a process.
    startup.import_quietly("keras")
    import keras

    import kerasvit

    keras.config.set_dtype_policy(config.dtype)
    measure = {"sam": sam, "load": load, "import": imports}.get(config.what, compare)
    usual = MODELS.get(config.what, ["ViTB16"])
    for name in [config.model] if config.model else usual:
        size = config.image_size or getattr(kerasvit, name).defaults["image_size"]
        one = dataclasses.replace(
            config,
            model=name,
            image_size=size,
            **counts,
        )
        measure(one, keras.backend.backend())


def some(number, default, least, option):
    """The number given, or the default."""
    if number is not None and number < least:
        sys.exit(f"`--{option}` must be at least {least}. Received: {number}.")
    return default if number is None else number


def on_every_backend(config):
    """Runs this script on all that are installed, whatever one of them does."""
    failed = []
    for backend in ("tensorflow", "jax", "torch"):
        if importlib.util.find_spec(backend):
            try:
                printed = in_new_process(config, backend, config.memory_of)
            except subprocess.CalledProcessError:
                failed.append(backend)
            else:
                print(end=f"{backend}: {printed}" if printed else "")
    if failed:
        sys.exit(f"It failed on {' and '.join(failed)}; the reasons are above.")


def compare(config, backend):
    """Times us and other libraries, and prints our ratio to each."""
    import rivals

    times = in_turns(rivals.steps(config), config)
    table = new_table(config, backend, "kerasvit / it")
    for rival, seconds in times.items():
        table.add_row(rival, *spread(seconds), ratio_to_us(times, rival))
    Console(width=100).print(table)


def sam(config, backend):
    """Times plain steps and those of the SAM family; memory each in its own process."""
    import sam_cost

    if config.memory_of:
        known(config.memory_of, sam_cost.METHODS)
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


def load(config, backend):
    """Times a model from its file, and takes the memory of each in its own process."""
    import loading

    with tempfile.TemporaryDirectory() as place:
        folder = config.folder or loading.new_folder(config, place)
        steps = loading.steps(folder)
        if config.memory_of:
            known(config.memory_of, steps)
            print(loading.most_bytes(steps[config.memory_of]))
            return
        config = dataclasses.replace(config, folder=folder)
        peaks = {name: int(in_new_process(config, backend, name)) for name in steps}
        times = in_turns(steps, config)
        size = loading.file_bytes(folder)
    columns = ("kerasvit / it", "peak MB", f"/ {size / 1e6:.0f} of the file")
    table = new_table(config, backend, *columns)
    for name, seconds in times.items():
        more = (f"{peaks[name] / 1e6:.0f}", f"{peaks[name] / size:.2f}")
        table.add_row(name, *spread(seconds), ratio_to_us(times, name), *more)
    Console(width=100).print(table)


def imports(config, backend):
    """Times new processes that import Keras, and us too."""
    import loading

    times = in_turns(loading.imports(backend), config)
    alone, both = times.values()
    table = new_table(config, backend, "median more")
    for name, seconds in times.items():
        more = statistics.median(b - a for a, b in zip(alone, seconds, strict=True))
        table.add_row(name, *spread(seconds), "" if seconds is alone else f"{more:.3f}")
    Console(width=100).print(table)


def known(name, rows):
    """Ends the script where a table has no such row."""
    if name not in rows:
        sys.exit(f"There is no row {name!r}; there are {', '.join(rows)}.")


def in_turns(steps, config):
    """{name: seconds of each round}, of functions that take turns."""
    times = {name: [] for name in steps}
    for turn in range(config.warmup + config.rounds):
        for name, step in steps.items():
            gc.collect()  # what an earlier step left
            start = time.perf_counter()
            made = step()
            seconds = time.perf_counter() - start
            del made
            if turn >= config.warmup:
                times[name].append(seconds)
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
    steps = (f"{config.image_size} px", f"batch {config.batch_size}", config.dtype)
    said = () if config.what in ("load", "import") else steps
    what = config.what if config.what == "import" else f"{config.model} {config.what}"
    table = Table(title=", ".join([what, *said, backend, f"{config.rounds} rounds"]))
    for column in ("", "median s", "least s", "most s", *columns):
        table.add_column(column, justify="left" if not column else "right")
    return table


def spread(seconds):
    """Median, least and most, as printed."""
    return [f"{f(seconds):.3f}" for f in (statistics.median, min, max)]


def ratios(seconds, others):
    """Those of each round."""
    return [a / b for a, b in zip(seconds, others, strict=True)]


def ratio_to_us(times, rival):
    """Our time over the rival's, as printed; nothing of ourselves."""
    ratio = statistics.median(ratios(times["kerasvit"], times[rival]))
    return "" if rival == "kerasvit" else f"{ratio:.2f}"


def read(arguments) -> Config:
    """The configuration of a command, checked before anything slow is imported.

    Raises:
        command_line.BadInput: An option, a number, the backend or a path is wrong.
    """
    config = command_line.parse_options(
        arguments, Config, prog="benchmark.py", description=Config.__doc__
    )
    try:
        command_line.check_numbers(config)
        if config.model is not None:
            names.check_model(config.model)
        if "KERAS_BACKEND" in os.environ or config.what not in ON_EVERY_BACKEND:
            startup.check_backend()
        if config.folder is not None and not Path(config.folder).is_dir():
            raise ValueError(f"`folder`: there is no folder {config.folder}.")
    except ValueError as error:
        raise command_line.BadInput(str(error)) from error
    return config


if __name__ == "__main__":
    command_line.main(lambda: main(read(sys.argv[1:])))
