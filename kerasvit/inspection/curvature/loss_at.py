"""The mean loss of a model over samples, at any values of its weights."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.backend import gradients_at, value_at
from kerasvit.backend.forward import constants
from kerasvit.backend.keras_private import in_variable_dtype
from kerasvit.types import Tensor

from .hessian import Loss
from .mean_loss import MeanLoss, check_finite, length


class LossAt:
    """The mean loss of a model, and its gradient, at given values of its variables.

    The model runs with `training=False` and in the dtype of its variables, and none is
    changed, see `Hessian`.

    Args:
        model: Built `keras.Model`.
        variables: The variables whose values are given; others have their own.
        loss: As for `MeanLoss`.

    Attributes:
        name: What tells the loss from others, in any process.
    """

    def __init__(
        self, model: keras.Model, variables: list[keras.Variable], loss: Loss
    ) -> None:
        self.model = model
        self.variables = variables
        self._loss = MeanLoss(model, loss)
        self.name = _name(model.loss if loss is None else loss)
        given = {id(variable) for variable in variables}
        self._others = [v for v in model.variables if id(v) not in given]

        def function(x: Any, y: Any) -> Tensor:
            return self._loss(y, model(x, training=False))

        everything = [*variables, *self._others]
        self._value = value_at(everything, function)
        self._gradients = gradients_at(everything, function, len(variables))

    def values(self) -> list[Tensor]:
        """Returns the present values of the variables."""
        return constants(self.variables)

    def value(self, values: list[Tensor], data: Iterable[tuple[Any, Any]]) -> float:
        """Returns the mean loss over batches: one forward pass for each.

        It may be infinite or NaN.
        """
        total, samples = 0.0, 0
        with in_variable_dtype(self.model):
            values = [*values, *constants(self._others)]
            for x, y in self._loss.checked(data):
                total += float(self._value(values, x, y)) * length(x)
                samples += length(x)
        _check_any(samples)
        return total / samples

    def gradients(
        self, values: list[Tensor], data: Iterable[tuple[Any, Any]]
    ) -> tuple[float, list[Tensor]]:
        """Returns the mean loss over batches and its gradients.

        Raises:
            ValueError: One of them is not finite, or there is no batch.
        """
        total, samples = 0.0, 0
        sums: list[Tensor] = []
        with in_variable_dtype(self.model):
            values = [*values, *constants(self._others)]
            for x, y in self._loss.checked(data):
                loss, found = self._gradients(values, x, y)
                terms = [gradient * length(x) for gradient in found]
                sums = [*map(ops.add, sums, terms)] if sums else terms
                total += float(loss) * length(x)
                samples += length(x)
        _check_any(samples)
        squares = sum(float(ops.sum(ops.square(each))) for each in sums)
        check_finite(np.array(total), np.array(squares), np.zeros(0))
        return total / samples, [each / samples for each in sums]


def norm(tensors: list[Tensor]) -> float:
    """Returns the Euclidean norm of all entries of several tensors."""
    return float(np.sqrt(sum(float(ops.sum(ops.square(each))) for each in tensors)))


def _name(loss: Any) -> str:
    """Returns the name of a loss with its settings; of a function, its name."""
    if isinstance(loss, str):
        return loss
    name = getattr(loss, "__qualname__", type(loss).__qualname__)
    settings = loss.get_config() if isinstance(loss, keras.losses.Loss) else ""
    return f"{name} {settings}"


def _check_any(samples: int) -> None:
    if not samples:
        raise ValueError("There must be at least one sample. Received: none.")
