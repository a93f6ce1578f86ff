"""The radius of a trainer: a number or a schedule."""

from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from kerasvit.arguments import number
from kerasvit.types import Tensor


class Radius:
    """The radius that a compiled step reads.

    A number is stored in a variable, so that a new value needs no new compilation. The
    variable belongs to no layer, so that files of weights do not contain it.

    Args:
        model: `keras.Model`. The variable is float64 if the model has weights of that
            dtype, else float32.
        plain_at_zero: Whether the number 0 selects the step of plain training, which
            has one pass.

    Attributes:
        given: The number, a float, or the schedule; NaN before `replace`.
        variable: Scalar `keras.Variable` with the number; unused under a schedule.
        plain: Whether steps are those of plain training.
    """

    def __init__(self, model: keras.Model, plain_at_zero: bool) -> None:
        float64 = any(variable.dtype == "float64" for variable in model.variables)
        # NaN and not None: on TensorFlow a model skips the assignment of a value that
        # an attribute already has, so that `rho=None` would not be checked.
        self.given: float | LearningRateSchedule = float("nan")
        self.plain = False
        self._plain_at_zero = plain_at_zero
        self.variable = keras.Variable(
            0.0,
            dtype="float64" if float64 else "float32",
            trainable=False,
            name="radius",
        )

    def replace(self, rho: float | LearningRateSchedule) -> bool:
        """Sets the number or schedule; the caller assigns the variable.

        Returns:
            Whether a compiled step must be compiled again: for a different schedule,
            and for a change from or to plain training.
        """
        before, was_plain = self.given, self.plain
        self.given = rho
        # A flag, because `torch.compile` would compile again for every new float.
        self.plain = self._plain_at_zero and is_number(rho) and rho == 0
        if is_number(before) and is_number(rho):
            return self.plain != was_plain
        return rho is not before

    def at(self, trainer: keras.Model) -> Tensor:
        """Returns the radius of the trainer's next step, a scalar tensor ≥ 0.

        Args:
            trainer: `keras.Model`. A schedule is called with the `iterations` of its
                optimizer; without a schedule the model need not be compiled.
        """
        if not isinstance(self.given, LearningRateSchedule):
            return ops.convert_to_tensor(self.variable)
        rho = ops.cast(self.given(trainer.optimizer.iterations), self.variable.dtype)
        return ops.where(rho < 0, ops.zeros_like(rho), rho)


def is_number(rho: Any) -> bool:
    """Returns whether a radius is a number and not a schedule."""
    return not isinstance(rho, LearningRateSchedule)


def number_or_schedule(rho: Any) -> float | LearningRateSchedule:
    """Checks a radius; returns a float, or the schedule.

    Raises:
        ValueError: `rho` is neither a finite number ≥ 0 nor a schedule.
    """
    if not is_number(rho):
        return rho
    return number(
        "rho",
        rho,
        0,
        meaning="the radius of the neighbourhood in which the loss is to be low; 0.05 "
        "is the paper's default and 0 is plain training; or a "
        "keras.optimizers.schedules.LearningRateSchedule",
    )
