"""Measures `serve`: latency, images per second, memory and start of ways to answer.

Each way runs in a process of its own, first on one core and then on all. The processes
of so many cores are called in turns.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from . import serve_ways
from .results import Result
from .settings import Config

BASE = "timm, PyTorch"


def measure(config: Config, backend: str) -> Result:
    """Times the ways to answer with a new model.

    The columns are the number of cores; the seconds from the start of the process to
    the first answer; the most memory of the process, which may have had 32 images; the
    latency of one image, median and 95 % quantile; and images per second, also relative
    to timm in PyTorch, the median of the rounds.
    """
    rows, seconds = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, config.name)
        folder.mkdir()
        ways = serve_ways.write(config, folder)
        for cores in sorted({1, len(os.sched_getaffinity(0))}):
            processes = {
                name: Process(name, way, folder, cores) for name, way in ways.items()
            }
            times = in_rounds(processes, config)
            peaks = {name: each.close() for name, each in processes.items()}
            for name, each in processes.items():
                row = [name, str(cores), f"{each.start:.1f}"]
                row.append(f"{peaks[name] / 1e6:.0f}")
                rows.append(row + speeds(times[name], times.get(BASE)))
                for count, rounds in times[name].items():
                    seconds[f"{name}, {cores} cores, batch {count}"] = sum(rounds, [])
    columns = ["cores", "start s", "MB", "p50 ms", "p95 ms"]
    for count in serve_ways.CALLS:
        columns += [f"images/s of {count}", f"/ {BASE}"]
    return Result.of(config, backend, columns, rows, seconds)


class Process:
    """A way in a process, which has answered once.

    Args:
        name: Of the way.
        way: What it needs.
        folder: What `serve_ways.write` wrote.
        cores: Number of cores that it may use.

    Attributes:
        start: Seconds to the first answer.
    """

    def __init__(self, name, way, folder, cores) -> None:
        start = time.perf_counter()
        environment = dict(os.environ)
        if way.backend:
            environment["KERAS_BACKEND"] = way.backend
        module = ["-m", serve_ways.__name__]
        self._process = subprocess.Popen(
            [sys.executable, *module, name, folder, str(cores)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.call(1)
        self.start = time.perf_counter() - start

    def call(self, count: int) -> float:
        """Returns the seconds of a call with so many images."""
        print(count, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> int:
        """Ends the process; returns the most bytes that it took."""
        return int(self._process.communicate()[0])


def in_rounds(processes: dict[str, Process], config: Config) -> dict[str, dict]:
    """Returns {name: {number of images: the seconds of each call of each round}}."""
    times = {name: {count: [] for count in serve_ways.CALLS} for name in processes}
    for turn in range(config.warmup + config.rounds):
        for count, calls in serve_ways.CALLS.items():
            for name, each in processes.items():
                found = [each.call(count) for _ in range(calls)]
                if turn >= config.warmup:
                    times[name][count].append(found)
    return times


def speeds(times: dict[int, list], base: dict[int, list] | None) -> list[str]:
    """Returns the cells of a way, beside the times of another if there is one."""
    latencies = 1000 * np.concatenate(times[1])
    cells = [f"{np.percentile(latencies, share):.0f}" for share in (50, 95)]
    for count in serve_ways.CALLS:
        found = np.median(times[count], axis=1)
        ratio = ""
        if base:
            ratio = f"{np.median(np.median(base[count], axis=1) / found):.2f}"
        cells += [f"{count / np.median(found):.1f}", ratio]
    return cells
