"""Measures `attention`: steps with fused attention and with the products and softmax.

Fused attention is one operation of the backend, which stores no weights of attention:
`kerasvit.ops.is_fused` tells where there is one. Where there is none,
both rows of a kind are the same steps.
"""

import dataclasses
import functools
import statistics
from collections.abc import Callable
from unittest import mock

from kerasvit import ops

from . import peak_memory, timing
from .keras_steps import batch, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config

KINDS = {  # {name: measurement of its step, whether attention is fused}
    "forward, fused": ("forward", True),
    "forward, products": ("forward", False),
    "train, fused": ("train", True),
    "train, products": ("train", False),
}
COLUMNS = (*timing.SPREAD, "images/s", "fused / it", "95 %")


def measure(config: Config, backend: str) -> Result:
    """Times both kinds of steps, and measures their memory."""
    builders = {name: functools.partial(step, config, name) for name in KINDS}
    steps, peaks = peak_memory.built(builders, config, backend, measured=config.memory)
    times = timing.in_turns(steps, config)
    rows = []
    for name, seconds in times.items():
        what, fused = KINDS[name]
        speed = config.batch_size / statistics.median(seconds)
        row = [name, *timing.spread(seconds), f"{speed:.1f}"]
        row += timing.ratio(times[f"{what}, fused"], None if fused else seconds)
        rows.append([*row, *([f"{peaks[name] / 2**20:.0f}"] if peaks else [])])
    columns = (*COLUMNS, "peak MiB") if peaks else COLUMNS
    return Result.of(config, backend, columns, rows, times)


def step(config: Config, name: str) -> Callable:
    """Returns a step of a new model."""
    what, fused = KINDS[name]
    one = dataclasses.replace(config, what=what)
    run = kerasvit_step(one, kerasvit_model(config), *batch(config))
    if fused:
        return run

    def with_products():
        with mock.patch.object(ops, "is_fused", lambda *_: False):
            return run()

    return with_products


def most_bytes(config: Config, name: str) -> int:
    """Returns the peak memory of the steps of a row after the first, in bytes."""
    timing.check_row(name, KINDS)
    return peak_memory.peak(step(config, name))
