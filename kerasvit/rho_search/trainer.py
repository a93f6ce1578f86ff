"""A SAM trainer that records the losses of a rho search."""

from typing import Any

import keras
import numpy as np

from kerasvit.training.sam import SAM

from .report import Seen


class Probe(SAM):
    """SAM that measures losses and gradients, with two passes even for radius 0.

    Args:
        model: As for `SAM`; it is trained in place.
        options: `perturbation` and `micro_batches`, as for `SAM`.
    """

    plain_at_zero = False
    advises = False  # on its radii, which are trials

    def __init__(self, model: keras.Model, **options: Any) -> None:
        super().__init__(model, name="probe", **options)

    def measure(
        self, held: list[tuple[Any, ...]], radius: float
    ) -> tuple[np.ndarray, Seen]:
        """Measures the model at its present weights.

        The trainer must be compiled with an optimizer that changes nothing.

        Args:
            held: Batches `(x, y, sample_weight)`.
            radius: Length of the step of the sharpness, > 0.

        Returns:
            The loss of every batch, an array, and `Seen`.
        """
        logs, steps = [], []
        for x, y, sample_weight in held:
            self.reset_metrics()
            logs.append(
                self.test_on_batch(x, y, sample_weight=sample_weight, return_dict=True)
            )
        self.rho = radius
        for x, y, sample_weight in held:
            self.reset_metrics()
            self.train_on_batch(x, y, sample_weight=sample_weight)
            seen = self.ascent()
            finite = seen.steps > 0
            steps.append([seen.slope / radius, seen.rise] if finite else [np.nan] * 2)
        means = {name: float(np.mean([log[name] for log in logs])) for name in logs[0]}
        length, rise = np.mean(steps, axis=0)
        losses = np.array([float(log["loss"]) for log in logs])
        return losses, Seen(means.pop("loss"), means, float(length), float(rise))
