"""First and second derivatives of a loss by the weights, on JAX."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import keras

from kerasvit.backend.forward import at_values
from kerasvit.types import LossDerivatives, Tensor

# A part of the key of JAX's cache of traces.
_trace_key = jax.make_user_context()


def fresh_trace(traced: bool = True) -> contextlib.AbstractContextManager:
    """Context in which JAX reuses no trace of a function.

    JAX caches the traces of functions of `jax.checkpoint`, which is `keras.remat`, and
    of `jax.jit` that a layer has stored: the second pass of a step would compute with
    the weights of the first.
    """
    return _trace_key(object()) if traced else contextlib.nullcontext()


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Same as in `torch/derivatives.py`; compiles the function once per shape."""

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
    """Same as in `torch/derivatives.py`; compiles the function once per shape."""
    value = value_at(variables, function)

    @jax.jit
    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        def at(weights: list[Tensor]) -> Tensor:
            return value([*weights, *values[count:]], *args)

        return jax.value_and_grad(at)(values[:count])

    return gradients


def loss_derivatives(
    model: keras.Model,
    variables: list[keras.Variable],
    loss: Callable[[Any, Any], Tensor],
) -> LossDerivatives:
    """Same as in `torch/derivatives.py`; compiles the loss once per shape."""
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


def input_gradient(
    model: keras.Model, function: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Same as in `torch/derivatives.py`; compiles the function once per shape.

    Its single operations would take far longer.
    """
    variables = model.variables

    # They are arguments; otherwise they would be compiled as constants.
    @jax.jit
    def gradient(values: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        def at(x: Tensor) -> Tensor:
            mapping = zip(variables, values, strict=True)
            with fresh_trace(), keras.StatelessScope(mapping):
                return function(x, y)

        return jax.grad(at)(x)

    return lambda x, y: at_values(variables, lambda values: gradient(values, x, y))
