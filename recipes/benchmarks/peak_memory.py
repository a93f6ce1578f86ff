"""Builds the rows of a table and measures the peak memory of each."""

from collections.abc import Callable

from training import memory

from . import timing
from .settings import Config


def built(
    builders: dict[str, Callable], config: Config, backend: str, *, measured: bool
) -> tuple[dict[str, Callable], dict[str, int]]:
    """Returns the steps of functions that build them, and the peaks of their memory.

    Args:
        builders: {name of a row: function that builds its step}.
        config: Settings of the measurement.
        backend: Name of the backend.
        measured: Whether to measure the memory, in bytes; in a new process for each
            row where the peak is that since the start: on CPUs, and on JAX.
    """
    steps, peaks = {}, {}
    for name, build in builders.items():
        before = memory.in_use()
        steps[name] = build()
        if measured and before is None:
            peaks[name] = int(timing.in_new_process(config, backend, name))
        elif measured:
            peaks[name] = peak(steps[name]) - before
    return steps, peaks


def peak(step: Callable) -> int:
    """Returns the peak memory of calls after the first, in bytes."""
    step()  # compiles
    return memory.most_bytes(lambda: (step(), step()))
