"""Functions of a model's variables on JAX, and their gradients."""

from collections.abc import Callable
from typing import Any

import jax
import keras

from kerasvit.types import Tensor

from .trace_jax import fresh_trace


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Same as in `at_weights_torch.py`; compiles the function once per shape."""

    def value(values: list[Tensor], *args: Any) -> Tensor:
        mapping = zip(variables, values, strict=True)
        # By default GPUs and TPUs multiply float32 matrices with fewer bits.
        with (
            fresh_trace(),
            jax.default_matmul_precision("highest"),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            return function(*args)

    return jax.jit(value)


def gradients_at(
    variables: list[keras.Variable], function: Callable[..., Tensor], count: int
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Same as in `at_weights_torch.py`; compiles the function once per shape."""
    value = value_at(variables, function)

    @jax.jit
    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        def at(weights: list[Tensor]) -> Tensor:
            return value([*weights, *values[count:]], *args)

        return jax.value_and_grad(at)(values[:count])

    return gradients
