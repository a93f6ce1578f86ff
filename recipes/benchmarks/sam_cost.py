"""Measures `sam`: training steps without SAM and of methods of the SAM family.

A method that perturbs only at every k-th step has two kinds of steps. A round times one
of each and weights them by 1/k and 1 - 1/k, which gives the mean over a cycle.

The floor is a plain step plus one more forward and backward pass, or a k-th of it. The
time of a pass is that of a plain SGD step, the fastest optimizer.
"""

from collections.abc import Callable

import keras
from training import dry_run

import kerasvit

from . import timing
from .keras_steps import batch, keras_step, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config

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
FLOOR_OF = dict(
    zip(METHODS, (None, "2 passes", "1.2 passes", "1.2 passes"), strict=True)
)
COLUMNS = ("it / plain", "it / floor", "95 %")
MEMORY = ("peak MiB", "weights more")


def measure(config: Config, backend: str) -> Result:
    """Times the steps of each method; measures memory in separate processes."""
    peaks = {
        name: int(timing.in_new_process(config, backend, name))
        for name in (METHODS if config.memory else ())
    }
    times = mean_over_cycles(timing.in_turns(steps(config), config))
    weights = weight_bytes(config)
    rows = []
    for name, seconds in times.items():
        of_plain, _ = timing.ratio(seconds, times[PLAIN])
        row = [name, *timing.spread(seconds), of_plain]
        if name in METHODS:
            row += timing.ratio(seconds, times.get(FLOOR_OF[name]), digits=3)
        if name in peaks:
            more = (peaks[name] - peaks[PLAIN]) / weights
            row += [f"{peaks[name] / 2**20:.0f}", f"{more:+.2f}"]
        rows.append(row)
    columns = [*timing.SPREAD, *COLUMNS, *(MEMORY if peaks else ())]
    return Result.of(config, backend, columns, rows, times)


def steps(config: Config) -> dict[tuple[str, float], Callable]:
    """Returns {(name, share of all steps): step} of all methods and of one pass."""
    model = kerasvit_model(config)
    sgd = keras.optimizers.SGD(1e-4)
    one_pass = keras_step(config, model, *batch(config), sgd, config.jit_compile)
    return {
        (name, share): step
        for name in METHODS
        for share, step in kinds_of_step(config, name).items()
    } | {(PASS, 1.0): one_pass}


def kinds_of_step(config: Config, name: str) -> dict[float, Callable]:
    """Returns {share of all steps: step} of one method with a new model."""
    model = kerasvit_model(config)
    trainer = METHODS[name](model)
    step = kerasvit_step(config, trainer, *batch(config), jit=config.jit_compile)
    period = getattr(trainer, "every", 1)
    if period == 1:
        return {1.0: step}

    def step_after(batches):
        trainer.batches = batches  # this number determines the kind of the step
        step()

    return {1 / period: lambda: step_after(0), 1 - 1 / period: lambda: step_after(1)}


def mean_over_cycles(times):
    """Returns {name: seconds per step of each round}, including the floors."""
    means = {}
    for (name, share), seconds in times.items():
        partial = means.get(name, [0.0] * len(seconds))
        means[name] = [a + share * b for a, b in zip(partial, seconds, strict=True)]
    one_pass = means.pop(PASS)
    for name, share in FLOORS.items():
        means[name] = [
            a + share * b for a, b in zip(means[PLAIN], one_pass, strict=True)
        ]
    return means


def weight_bytes(config: Config) -> int:
    """Returns the size of the trainable variables in bytes."""
    model = kerasvit_model(config)
    return sum(keras.ops.convert_to_numpy(v).nbytes for v in model.trainable_variables)


def most_bytes(config: Config, name: str) -> int:
    """Returns the peak memory of compiled steps of one method, in bytes."""
    timing.check_row(name, METHODS)
    kinds = kinds_of_step(config, name).values()

    def cycle():
        for step in kinds:
            step()

    cycle()
    return dry_run.most_bytes(lambda: (cycle(), cycle()))
