"""Functions of a model's variables on PyTorch, and their gradients."""

from collections.abc import Callable
from typing import Any

import keras
import torch

from kerasvit.types import Tensor


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Returns a function that computes at given values of variables.

    Args:
        variables: All variables that `function` reads.
        function: Function of tensors, or structures of them, that calls a model and
            returns a scalar tensor.

    Returns:
        Function of a list of values, one for each variable, and the arguments of
        `function`. No variable is changed.
    """

    def value(values: list[Tensor], *args: Any) -> Tensor:
        with torch.no_grad():
            return _at(variables, function, values, args)

    return value


def gradients_at(
    variables: list[keras.Variable], function: Callable[..., Tensor], count: int
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Returns a function that computes a value and gradients at values of variables.

    Args:
        variables: All variables that `function` reads.
        function: As for `value_at`.
        count: Number of variables, the first ones, to differentiate by.

    Returns:
        Function of the same arguments as that of `value_at`. It returns the value and
        `count` gradients, with zeros where the value does not depend on a variable.
    """

    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        weights = [value.detach().requires_grad_() for value in values[:count]]
        value = _at(variables, function, [*weights, *values[count:]], args)
        if not value.requires_grad:
            return value, [torch.zeros_like(weight) for weight in weights]
        found = torch.autograd.grad(
            value, weights, allow_unused=True, materialize_grads=True
        )
        return value.detach(), list(found)

    return gradients


def _at(
    variables: list[keras.Variable],
    function: Callable[..., Tensor],
    values: list[Tensor],
    args: tuple,
) -> Tensor:
    mapping = zip(variables, values, strict=True)
    with keras.StatelessScope(mapping, collect_losses=True):
        return function(*args)
