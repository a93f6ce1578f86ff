"""Times functions in turns, and runs a measurement in a new process."""

import dataclasses
import gc
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence

from .settings import Config

COMMAND = ("-m", "recipes.benchmarks")
SPREAD = ("median s", "least s", "most s")  # the columns of `spread`


def in_turns(steps: dict[str, Callable], config: Config) -> dict[str, list[float]]:
    """Calls functions in turns and returns {name: seconds of each round}."""
    times = {name: [] for name in steps}
    for turn in range(config.warmup + config.rounds):
        for name, step in steps.items():
            gc.collect()  # frees memory of earlier steps
            start = time.perf_counter()
            result = step()
            seconds = time.perf_counter() - start
            del result
            if turn >= config.warmup:
                times[name].append(seconds)
    return times


def in_new_process(config: Config, backend: str, memory_of: str | None = None):
    """Runs the command on a backend; with `memory_of`, returns its output."""
    settings = dataclasses.asdict(dataclasses.replace(config, memory_of=memory_of))
    options = []
    for key, value in settings.items():
        if isinstance(value, tuple):
            options += [f"--{key}", *value] if value or key == "rivals" else []
        elif isinstance(value, bool):
            options.append(f"--{key}" if value else f"--no-{key}")
        elif key != "what" and value is not None:
            options.append(f"--{key}={value}")
    # For `memory_of`, the C library returns large blocks to the system when they are
    # freed, so that the memory of the process is that of its tensors.
    malloc = {"MALLOC_MMAP_THRESHOLD_": "65536"} if memory_of else {}
    return subprocess.run(
        [sys.executable, *COMMAND, config.what, *options],
        env={**os.environ, "KERAS_BACKEND": backend, **malloc},
        stdout=subprocess.PIPE if memory_of else None,
        text=True,
        check=True,
    ).stdout


def check_row(name: str, rows: Collection[str]) -> None:
    """Ends the process if a table has no such row."""
    if name not in rows:
        sys.exit(f"There is no row {name!r}; there are {', '.join(rows)}.")


def spread(seconds: Sequence[float]) -> list[str]:
    """Returns median, minimum and maximum, formatted."""
    return [f"{f(seconds):.3f}" for f in (statistics.median, min, max)]


def ratios(seconds: Sequence[float], others: Sequence[float]) -> list[float]:
    """Returns the ratio of each round."""
    return [a / b for a, b in zip(seconds, others, strict=True)]


def ratio(
    seconds: Sequence[float], others: Sequence[float] | None, digits: int = 2
) -> list[str]:
    """Returns the median ratio of the rounds and its 95 % interval, formatted.

    Both are "" without other times.
    """
    if others is None:
        return ["", ""]
    each = ratios(seconds, others)
    median, least, most = (
        f"{number:.{digits}f}" for number in (statistics.median(each), *interval(each))
    )
    return [median, f"{least} to {most}"]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns an interval that contains the median with a probability of 95 %.

    Its ends are the values of ranks r and n + 1 - r, for the largest r with which the
    interval covers the median of the distribution with at least 95 %: ranks 4 and 12 of
    15 values. Of fewer than 6 values, the ends are the smallest and the largest.
    """
    n = len(values)
    outside = 0.0  # probability that r or fewer of n values are below the median
    for r in range(n):
        outside += math.comb(n, r) / 2**n
        if 2 * outside > 0.05:
            break
    ordered = sorted(values)
    first = max(r - 1, 0)
    return ordered[first], ordered[-1 - first]
