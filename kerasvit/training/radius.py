"""The radius of a trainer: a number or a schedule."""

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from kerasvit.arguments import number


class Radius:
    """The radius that a compiled step reads.

    A number is in a variable, so that another one needs no new compilation. The
    variable belongs to no layer, so that no file of weights has it.

    Args:
        model: `keras.Model`; the variable is float64 where the model has weights of
            that dtype, else float32.
        plain_at_zero: Whether a step for the number 0 is another one, that of plain
            training.

    Attributes:
        given: The number, a float, or the schedule; NaN before `replace`.
        variable: Scalar `keras.Variable`: the number. It is not read under a schedule.
        plain: Whether steps are those of plain training.
    """

    def __init__(self, model: keras.Model, plain_at_zero: bool):
        wide = any(variable.dtype == "float64" for variable in model.variables)
        # Not None: a model of TensorFlow skips the assignment of a value that the
        # attribute already has, so that `rho=None` would not be checked.
        self.given = float("nan")
        self.plain = False
        self._plain_at_zero = plain_at_zero
        self.variable = keras.Variable(
            0.0,
            dtype="float64" if wide else "float32",
            trainable=False,
            name="radius",
        )

    def replace(self, rho) -> bool:
        """Sets another number or schedule; the caller assigns the variable.

        Returns:
            Whether a compiled step has to be compiled again: for another schedule, and
            from or to plain training.
        """
        before, was_plain = self.given, self.plain
        self.given = rho
        # A flag, as `torch.compile` would compile again for another float.
        self.plain = self._plain_at_zero and is_number(rho) and rho == 0
        if is_number(before) and is_number(rho):
            return self.plain != was_plain
        return rho is not before

    def at(self, trainer):
        """Returns the radius of the trainer's next step, a scalar tensor ≥ 0.

        Args:
            trainer: `keras.Model`. A schedule is called with the `iterations` of its
                optimizer; without a schedule it need not be compiled.
        """
        if is_number(self.given):
            return ops.convert_to_tensor(self.variable)
        rho = ops.cast(self.given(trainer.optimizer.iterations), self.variable.dtype)
        return ops.where(rho < 0, ops.zeros_like(rho), rho)


def is_number(rho) -> bool:
    """Whether a radius is a number and not a schedule."""
    return not isinstance(rho, LearningRateSchedule)


def number_or_schedule(rho):
    """Checks a radius: returns a float, or the schedule.

    Raises:
        ValueError: It is neither a finite number ≥ 0 nor a schedule.
    """
    if not is_number(rho):
        return rho
    return number(
        "rho",
        rho,
        0,
        meaning="the radius within which the loss is to be flat; 0.05 is the paper's "
        "default and 0 trains without SAM; or a "
        "keras.optimizers.schedules.LearningRateSchedule",
    )
