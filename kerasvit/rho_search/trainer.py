"""A SAM trainer that records the losses of a rho search."""

from typing import Any

import keras
import numpy as np

from kerasvit.training.sam import SAM
from kerasvit.training.vectors import all_finite, norm, only_if
from kerasvit.typing import Gradients, LossAndGradients, Tensor

from .report import Seen


class Probe(SAM):
    """SAM that records losses and gradients, with two passes even for radius 0.

    Args:
        model: As for `SAM`; it is trained in place.
        options: `perturbation` and `micro_batches`, as for `SAM`.
    """

    plain_at_zero = False

    def __init__(self, model: keras.Model, **options: Any) -> None:
        super().__init__(model, name="probe", **options)
        self.length, self.rise = (
            self.add_weight(
                shape=(),
                initializer="zeros",
                dtype="float32",
                trainable=False,
                name=name,
            )
            for name in ("length", "rise")
        )

    def slots_of(self, variables: list[keras.Variable]) -> list[keras.Variable]:
        """Returns the variables for the gradient norm and the rise of the loss."""
        return [self.length, self.rise]

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns SAM's gradients and the measurements."""
        low, here = loss_and_gradients(weights)
        perturbed = self.perturbed(weights, here)
        high, above = loss_and_gradients(perturbed)
        above = only_if(all_finite(perturbed), above)
        low, high, length = (
            keras.ops.cast(seen, "float32") for seen in (low, high, norm(here))
        )
        return above, [length, high - low]

    def measure(self, held: list[tuple], radius: float) -> tuple[np.ndarray, Seen]:
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
            for variable in (self.length, self.rise):
                variable.assign(np.nan)  # stays if the measurement is not finite
            self.train_on_batch(x, y, sample_weight=sample_weight)
            steps.append([float(self.length.value), float(self.rise.value)])
        means = {name: float(np.mean([log[name] for log in logs])) for name in logs[0]}
        length, rise = np.mean(steps, axis=0)
        losses = np.array([float(log["loss"]) for log in logs])
        return losses, Seen(means.pop("loss"), means, float(length), float(rise))
