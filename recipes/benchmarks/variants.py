"""Measures `table`: images per second of every variant up to a number of multiply-adds.

Variants are measured one after the other, so that one is in memory at a time.
"""

import dataclasses
import gc

import keras

import kerasvit

from . import timing
from .keras_steps import batch, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config

COLUMNS = ("10⁶ parameters", "10⁹ multiply-adds", "pixels", "images/s")


def chosen(config: Config) -> list[str]:
    """Returns the given variants, or all up to `gmacs`, from the cheapest."""
    costs = {
        name: getattr(kerasvit, name).multiply_adds for name in kerasvit.list_models()
    }
    names = config.model or [
        name for name, cost in costs.items() if cost and cost <= config.gmacs
    ]
    return sorted(names, key=lambda name: costs[name] or 0)


def measure(config: Config, backend: str) -> Result:
    """Times a forward pass of each variant, one after the other."""
    rows, times = [], {}
    for name in chosen(config):
        variant = getattr(kerasvit, name)
        size = config.image_size or variant.defaults["image_size"]
        one = dataclasses.replace(config, model=(name,), image_size=size)
        step = kerasvit_step(one, kerasvit_model(one), *batch(one))
        times |= timing.in_turns({name: step}, one)
        speed = config.batch_size / float(timing.spread(times[name])[0])
        numbers = (f"{variant.parameters / 1e6:.1f}", f"{variant.multiply_adds:g}")
        rows.append([name, *numbers, str(size), f"{speed:.1f}"])
        del step
        keras.utils.clear_session(free_memory=False)
        gc.collect()
    return Result.of(config, backend, COLUMNS, rows, times)
