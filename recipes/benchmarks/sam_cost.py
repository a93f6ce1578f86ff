"""What `sam` measures: training steps, plain and of the SAM family.

A method that looks uphill at every k-th step only has two kinds of step. A round times
one of each, and counts the first 1/k, the other 1 - 1/k: the mean over a cycle.

The floor is a plain step and one pass more, forward and backward, or a k-th of it. The
pass is that of a step of plain SGD, the cheapest optimizer there is.
"""

import os
import statistics
from collections.abc import Callable

# Of a GPU they would else take the most at once, and leave nothing to other processes.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import keras  # noqa: E402

import kerasvit  # noqa: E402

from . import memory, rivals, timing  # noqa: E402
from .results import Result  # noqa: E402
from .settings import Config  # noqa: E402

K = 5
PLAIN = "plain step"
METHODS = {
    PLAIN: lambda model: model,
    "SAM": lambda model: kerasvit.SAM(model, rho=0.05),
    f"LookSAM(k={K})": lambda model: kerasvit.LookSAM(model, rho=0.05, k=K),
    f"SAM(every={K})": lambda model: kerasvit.SAM(model, rho=0.05, every=K),
}
PASS = "a pass"
FLOORS = {f"{1 + share:g} passes": share for share in (1.0, 1 / K)}
COLUMNS = ("it / plain", "least", "most", "peak MiB", "weights more")


def measure(config: Config, backend: str) -> Result:
    """Times the steps of each method; the memory of each in a process of its own."""
    peaks = {
        name: int(timing.in_new_process(config, backend, name)) for name in METHODS
    }
    times = mean_over_cycles(timing.in_turns(steps(config), config))
    weights = weight_bytes(config)
    rows = []
    for name, seconds in times.items():
        each = timing.ratios(seconds, times[PLAIN])
        numbers = (statistics.median(each), min(each), max(each))
        row = [name, *timing.spread(seconds), *(f"{n:.2f}" for n in numbers)]
        if name in peaks:
            more = (peaks[name] - peaks[PLAIN]) / weights
            row += [f"{peaks[name] / 2**20:.0f}", f"{more:+.2f}"]
        rows.append(row)
    return Result.of(config, backend, [*timing.SPREAD, *COLUMNS], rows)


def steps(config: Config) -> dict[tuple[str, float], Callable]:
    """{(name, share of all steps): step} of all methods, and of a pass alone."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    sgd = keras.optimizers.SGD(1e-4)
    alone = rivals.keras_step(config, model, *rivals.batch(config), sgd)
    return {
        (name, share): step
        for name in METHODS
        for share, step in kinds_of_step(config, name).items()
    } | {(PASS, 1.0): alone}


def kinds_of_step(config: Config, name: str) -> dict[float, Callable]:
    """{share of all steps: step} of one method, around a model of its own."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    trainer = METHODS[name](model)
    step = rivals.keras_step(config, trainer, *rivals.batch(config))
    period = getattr(trainer, "every", 1)
    if period == 1:
        return {1.0: step}

    def at(place):
        trainer.batches = place  # the number of batches before decides which kind
        step()

    return {1 / period: lambda: at(0), 1 - 1 / period: lambda: at(1)}


def mean_over_cycles(times):
    """{name: seconds a step, of each round}; the floors besides."""
    means = {}
    for (name, share), seconds in times.items():
        known = means.get(name, [0.0] * len(seconds))
        means[name] = [a + share * b for a, b in zip(known, seconds, strict=True)]
    alone = means.pop(PASS)
    for name, share in FLOORS.items():
        means[name] = [a + share * b for a, b in zip(means[PLAIN], alone, strict=True)]
    return means


def weight_bytes(config: Config) -> int:
    """Size of the trainable variables."""
    model = getattr(kerasvit, config.model)(image_size=config.image_size)
    return sum(keras.ops.convert_to_numpy(v).nbytes for v in model.trainable_variables)


def most_bytes(config: Config, name: str) -> int:
    """The most memory that steps of one method take, once they are compiled."""
    timing.check_row(name, METHODS)
    kinds = kinds_of_step(config, name).values()

    def cycle():
        for step in kinds:
            step()

    cycle()
    return memory.most_bytes(lambda: (cycle(), cycle()))
