"""What SAM's steps up to w' did to the loss, summed over the steps of an epoch."""

import math
from typing import NamedTuple

import keras
from keras import ops

from kerasvit.types import Gradients, LossAndGradients, Tensor

from .vectors import dot, norm


class Means(NamedTuple):
    """Means over the steps with two passes; NaN without such a step.

    Attributes:
        loss: L(w).
        rise: L(w') − L(w).
        slope: ⟨g, w' − w⟩, the rise to first order.
        cosine: Cosine between g and g', or 0 where it was not asked for.
        trend: Number of the step, from 0, times L(w).
        steps: Number of steps.
    """

    loss: float
    rise: float
    slope: float
    cosine: float
    trend: float
    steps: float


class Ascent:
    """Sums over the steps with two passes.

    Attributes:
        sums: `keras.Variable` of shape (6,): the sums whose means are in `Means`, and
            the number of steps. It belongs to no layer, so that files do not contain
            it.
        slope: ⟨g, w' − w⟩ of the pass that follows, a scalar tensor.
    """

    def __init__(self) -> None:
        self.sums = keras.Variable(
            ops.zeros(6), dtype="float32", trainable=False, name="ascent"
        )
        self.slope: Tensor | None = None

    def begin(self, rho: Tensor, length: Tensor) -> None:
        """Sets the slope of the pass that follows, `rho` · `length`."""
        self.slope = ops.cast(rho, length.dtype) * length

    def means(self, earlier: Means | None = None) -> Means:
        """Returns the means, as numbers; with those of earlier steps, if given."""
        *sums, steps = ops.convert_to_numpy(self.sums).tolist()
        if earlier and earlier.steps:
            sums[-1] += earlier.steps * sums[0]  # numbers of the steps, of the trend
            before = [earlier.steps * each for each in earlier[:-1]]
            sums = [a + b for a, b in zip(sums, before, strict=True)]
            steps += earlier.steps
        loss, rise, slope, cosine, trend = (
            each / steps if steps else math.nan for each in sums
        )
        return Means(loss, rise, slope, cosine, trend, steps)


class Passes:
    """The passes of a step: a `LossAndGradients` that remembers their results.

    Args:
        compute: The function that takes a pass.
        ascent: Has the slope when the second pass begins.
        keep: Whether to keep the gradients for their cosine: they take the memory of
            the weights until the end of the step.
    """

    def __init__(self, compute: LossAndGradients, ascent: Ascent, keep: bool) -> None:
        self._compute, self._ascent, self._keep = compute, ascent, keep
        self._losses: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._gradients: list[Gradients] = []

    def __call__(self, values: list[Tensor]) -> tuple[Tensor, Gradients]:
        """Takes a pass."""
        if self._losses:  # taken at once, because replicas of TensorFlow take turns
            self._slopes.append(self._ascent.slope)
            self._ascent.slope = None
        loss, gradients = self._compute(values)
        self._losses.append(loss)
        if self._keep:
            self._gradients.append([*gradients])
        return loss, gradients

    def added_to(self, sums: Tensor) -> Tensor:
        """Returns `Ascent.sums` with this step; unchanged after a single pass."""
        if len(self._losses) != 2:
            return sums
        low, high, slope = (
            ops.cast(each, "float32") for each in (*self._losses, *self._slopes)
        )
        cosine = _cosine(*self._gradients) if self._keep else ops.zeros_like(low)
        cosine = ops.cast(cosine, "float32")
        trend, one = sums[-1] * low, ops.ones_like(low)
        return sums + ops.stack([low, high - low, slope, cosine, trend, one])


def _cosine(first: Gradients, second: Gradients) -> Tensor:
    # Two divisions: the product of small lengths is 0 in float32.
    lengths = norm(first) + 1e-12, norm(second) + 1e-12
    return dot(first, second) / lengths[0] / lengths[1]


FEWEST = 5  # steps from which the means say something
FALL = 0.3  # share of its mean by which the loss of an epoch falls at least
BEYOND = 6.0  # slopes over losses from which w' is outside of w's neighbourhood
SMALLER = 0.2  # the proposed radius is at most this share of the present one


def advice(means: Means, rho: object) -> str | None:
    """Returns a warning if the steps did not descend, else None.

    The loss hardly fell, and one of two signs shows that the radius is the cause:

    - the loss rises by less than half of the slope. It rises by the mean of the slopes
      at both ends of the way (trapezoidal rule), so that the slope at w', ⟨g', w' − w⟩,
      is below 0: there −g' points away from w, uphill.
    - the slope is more than `BEYOND` losses: w' knows nothing of what w knows.

    The proposed radius is that whose slope equals the loss. Measured limits, and papers
    on SAM's attraction to saddles: kerasvit/training/README.md.

    Args:
        means: Those of the first epoch, or of the first epochs if they are short.
        rho: The radius of the trainer, or its schedule.
    """
    steps, loss = means.steps, means.loss
    if not steps >= FEWEST:
        return None
    # Change of the loss over all steps, by a line through the losses of all steps.
    change = 12 * (means.trend - loss * (steps - 1) / 2) / (steps + 1)
    backward = means.rise < means.slope / 2
    beyond = 0 < BEYOND * loss < means.slope
    if change < -FALL * abs(loss) or not (backward or beyond):
        return None
    share = min(loss / means.slope, SMALLER) if loss > 0 else SMALLER
    number = f", {rho * share:.1g}" if isinstance(rho, float) else ""
    return (
        f"The training loss hardly fell in the first {steps:.0f} steps ({loss:.3g} on "
        "average), and rho is too large for these weights: at w' the loss is "
        f"{means.rise:.3g} higher. Try {share:.1g} times the radius{number}, or train "
        'without SAM first. See "A radius that is too large" in '
        "kerasvit/training/README.md."
    )
