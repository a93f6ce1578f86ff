"""Second derivatives of a loss on JAX."""

from collections.abc import Callable
from typing import Any

import jax
import keras

from kerasvit.types import LossDerivatives, Tensor

from .forward import at_values
from .trace_jax import fresh_trace


def loss_derivatives(
    model: keras.Model,
    variables: list[keras.Variable],
    loss: Callable[[Any, Any], Tensor],
) -> LossDerivatives:
    """Same as in `hessian_torch.py`; compiles the loss once per shape."""
    differentiated = {id(variable) for variable in variables}
    others = [v for v in model.variables if id(v) not in differentiated]

    @jax.jit
    def derivatives(
        weights: list[Tensor], state: list[Tensor], vector: list[Tensor], x: Any, y: Any
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        # All variables are arguments; otherwise they would be compiled as constants.
        def loss_at(weights: list[Tensor]) -> Tensor:
            values = [*weights, *state]
            mapping = zip([*variables, *others], values, strict=True)
            with (
                fresh_trace(),
                keras.StatelessScope(mapping, collect_losses=True),
            ):
                return loss(x, y)

        # By default GPUs and TPUs multiply float32 matrices with fewer bits.
        with jax.default_matmul_precision("highest"):
            (value, gradients), (_, products) = jax.jvp(
                jax.value_and_grad(loss_at), (weights,), (vector,)
            )
        return value, gradients, products

    def compute(
        vector: list[Tensor], x: Any, y: Any
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        def at(values: list[Tensor]) -> Any:
            weights, state = values[: len(variables)], values[len(variables) :]
            return derivatives(weights, state, vector, x, y)

        return at_values([*variables, *others], at)

    return compute
