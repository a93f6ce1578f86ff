"""Estimates whether a measure fits into the time that is left."""

import time

import keras
import numpy as np

from kerasvit import inspection

from .measure import Passes, without_derivatives
from .subjects import Subject


class Budget:
    """Time for the measures, from now on.

    Args:
        seconds: The time; None: as long as it takes.
    """

    def __init__(self, seconds: float | None):
        self.seconds, self.start = seconds, time.perf_counter()
        self.costs: dict[str, tuple[float, float, float]] = {}

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self.start)

    def estimate(self, passes: Passes, subjects: list[Subject]) -> float:
        """Returns the seconds that a measure will take, about."""
        total = 0.0
        for each in subjects:
            forward, product, program = self._costs(each)
            total += passes.forward * forward + passes.products * product
            total += passes.programs * program
        return total

    def refusal(self, work: list[tuple[Passes, list[Subject]]]) -> str:
        """Returns why measures do not fit, one sentence, or "".

        Args:
            work: Passes and models of each.
        """
        if self.seconds is None:
            return ""
        needed = sum(self.estimate(*each) for each in work)
        left = self.left
        if not work or needed <= left:
            return ""
        return (
            f"Left out: it takes about {duration(needed)}, and {duration(left)} of the "
            "budget are left."
        )

    def _costs(self, subject):
        """Returns the seconds of a forward pass, a product and a compilation."""
        if subject.name not in self.costs:
            self.costs[subject.name] = _measured(subject)
        return self.costs[subject.name]


def _measured(subject):
    size = min(subject.batch_size, len(subject.x))
    model, x, y, loss = subject.data
    batches = len(x) / size
    first, forward = _seconds(lambda: keras.ops.convert_to_numpy(model(x[:size])))
    product = forward
    if not without_derivatives(subject):
        hessian = inspection.Hessian(model, x[:size], y[:size], loss, batch_size=size)
        vector = np.ones(hessian.shape[0])
        first, product = _seconds(lambda: hessian @ vector)
    return forward * batches, product * batches, first - product


def _seconds(work):
    """Returns the seconds of the first and of the second call."""
    times = [time.perf_counter()]
    for _ in range(2):
        work()
        times.append(time.perf_counter())
    first, second = np.diff(times)
    return float(first), float(second)


def duration(seconds: float) -> str:
    """Returns a time in words: "less than 1 s", "4 s", "12 min", "1.5 h"."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
