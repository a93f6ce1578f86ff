"""SAM that is watched."""

import keras
import numpy as np

from .advice import Seen
from .sam import SAM, ascend
from .vectors import norm


class Probe(SAM):
    """SAM whose radius is a variable, for one compilation, and that notes what it sees.

    Args:
        model: As for `SAM`; it is trained in place.
        options: `perturbation` and `micro_batches`, as for `SAM`.
    """

    def __init__(self, model: keras.Model, **options):
        super().__init__(model, name="probe", **options)
        self.radius, self.length, self.rise = (
            self.add_weight(
                shape=(),
                initializer="zeros",
                dtype="float32",
                trainable=False,
                name=name,
            )
            for name in ("radius", "length", "rise")
        )

    def memory_of(self, variables):
        """The radius; the length of the gradient; the rise of the loss."""
        return [self.radius, self.length, self.rise]

    def step_gradients(self, loss_and_gradients, weights, memory):
        """SAM's gradients, and what was seen on the way."""
        radius, *_ = memory
        low, here = loss_and_gradients(weights)
        high, above = loss_and_gradients(ascend(weights, here, radius))
        rise = keras.ops.cast(high, "float32") - keras.ops.cast(low, "float32")
        return above, [radius, norm(here), rise]

    def measure(self, held, radius):
        """What the model is like at these weights, with an optimizer that stands still.

        Args:
            held: Batches `(x, y, sample_weight)`.
            radius: That of the sharpness, > 0.

        Returns:
            The loss of every batch, an array, and `Seen`.
        """
        logs, steps = [], []
        for x, y, sample_weight in held:
            self.reset_metrics()
            logs.append(
                self.test_on_batch(x, y, sample_weight=sample_weight, return_dict=True)
            )
        self.radius.assign(radius)
        for x, y, sample_weight in held:
            for variable in (self.length, self.rise):
                variable.assign(np.nan)  # what is not finite is not written
            self.train_on_batch(x, y, sample_weight=sample_weight)
            steps.append([float(self.length.value), float(self.rise.value)])
        means = {name: float(np.mean([log[name] for log in logs])) for name in logs[0]}
        length, rise = np.mean(steps, axis=0)
        losses = np.array([float(log["loss"]) for log in logs])
        return losses, Seen(means.pop("loss"), means, float(length), float(rise))
