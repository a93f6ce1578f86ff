"""Measures `forward` and `train`: the same step of kerasvit and other libraries.

The others are keras-hub's ViT, for BiT and similar models the ResNet-50 v2 of
keras.applications, with batch normalisation, and timm's model in plain torch, if they
are installed; and of a given checkout KerasFormers' ViT, and on JAX the authors' code.
In `mixed_bfloat16`, kerasvit's step in float32 is one more.

The authors' code approximates GELU by tanh, and the models of its weights do too. It is
compared with a model that does, a further row; the others compute the exact GELU.
"""

import functools
import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
from devices import device_name
from training import dry_run

import kerasvit

from . import rivals, timing
from .keras_steps import batch, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config

COLUMNS = (*timing.SPREAD, "images/s", "of products", "kerasvit / it", "95 %")
IN_FLOAT32 = "kerasvit, float32"
WITH_TANH = "kerasvit, tanh"
SIDE, SIDE_ON_ACCELERATOR = 2048, 8192  # of the matrices of a product
PRODUCTS = 7
PASSES = {"forward": 1, "train": 3}  # the gradients take two products for each


def measure(config: Config, backend: str) -> Result:
    """Times kerasvit and other libraries, and computes the ratios.

    `of products` is the share of the rate of multiply-adds of a large product of two
    matrices, in the same precision.
    """
    measured = config.memory and device_name.accelerator() is not None
    named = builders(config)
    steps, peaks = built(named, config, backend, measured=measured)
    times = timing.in_turns(steps, config)
    most = operations_per_second(config.dtype)
    variant = getattr(kerasvit, config.name)
    rows = []
    for name, seconds in times.items():
        row = [name, *timing.spread(seconds)]
        speed = config.batch_size / statistics.median(seconds)
        needed = 2e9 * (variant.multiply_adds or 0) * PASSES[config.what] * speed
        stated = name not in ("ResNet50V2", IN_FLOAT32) and needed
        stated = stated and config.image_size == variant.defaults["image_size"]
        row += [f"{speed:.1f}", f"{needed / most:.0%}" if stated else ""]
        same = times[WITH_TANH if name == "Flax" else "kerasvit"]
        row += timing.ratio(same, None if name == "kerasvit" else seconds)
        rows.append(row + ([f"{peaks[name] / 2**20:.0f}"] if peaks else []))
    columns = (*COLUMNS, "peak MiB") if peaks else COLUMNS
    result = Result.of(config, backend, columns, rows, times)
    result.about["products"] = f"{most / 1e9:.0f} GFLOP/s"
    return result


def builders(config: Config) -> dict[str, Callable]:
    """Returns {name: function that builds a step} of kerasvit and the rivals."""
    images, labels = batch(config)

    def own(**arguments):
        model = kerasvit_model(config, **arguments)
        return kerasvit_step(config, model, images, labels)

    others = rivals.found(config)
    found = {"kerasvit": own}
    if config.dtype != "float32" and not device_name.accelerator():
        found[IN_FLOAT32] = functools.partial(own, dtype="float32")
    if "Flax" in others:
        found[WITH_TANH] = functools.partial(own, activation="gelu_tanh")
    for name, build in others.items():
        found[name] = functools.partial(build, config, images, labels)
    return found


def most_bytes(config: Config, name: str) -> int:
    """Returns the peak memory of steps of a row after the first, in bytes."""
    timing.check_row(name, named := builders(config))
    return peak(named[name]())


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
        before = dry_run.in_use()
        steps[name] = build()
        if measured and before is None:
            peaks[name] = int(timing.in_new_process(config, backend, name))
        elif measured:
            peaks[name] = peak(steps[name]) - before
    return steps, peaks


def peak(step: Callable) -> int:
    """Returns the peak memory of calls after the first, in bytes."""
    step()  # compiles
    return dry_run.most_bytes(lambda: (step(), step()))


def operations_per_second(dtype: str) -> float:
    """Returns the most operations per second of products, two per multiply-add.

    Args:
        dtype: "float32" or "mixed_bfloat16", which is that of the matrices.
    """
    side = SIDE_ON_ACCELERATOR if device_name.accelerator() else SIDE
    random = np.random.default_rng(0).normal(size=(side, side)).astype("float32")
    dtype = dtype.removeprefix("mixed_")
    matrix = keras.ops.cast(random, dtype)
    layer = kerasvit.layers.Dense(side, use_bias=False, dtype=dtype)
    seconds = []
    for _ in range(PRODUCTS):
        start = time.perf_counter()
        result = layer(matrix)
        keras.ops.convert_to_numpy(result[0, 0])  # waits for the product
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / min(seconds)
