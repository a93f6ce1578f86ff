"""The gradient of a function of a model by its input, on each backend."""

from collections.abc import Callable

import keras

from kerasvit.types import Tensor

from .forward import at_values

if keras.backend.backend() == "jax":
    import jax

    from .trace_jax import fresh_trace
elif keras.backend.backend() == "tensorflow":
    import tensorflow as tf
elif keras.backend.backend() == "torch":
    import torch


def input_gradient(
    model: keras.Model, function: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the gradient of a scalar function of `x` and `y` by `x`, as a function.

    It has the shape of `x`, and zeros where the function does not depend on it. JAX
    compiles it once per shape; its single operations would take far longer.

    Args:
        model: `keras.Model` that the function calls.
        function: Function of floating tensors `x` and `y`.
    """
    if keras.backend.backend() == "tensorflow":
        return lambda x, y: _of_tensorflow(function, x, y)
    if keras.backend.backend() == "torch":
        return lambda x, y: _of_torch(function, x, y)

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


def _of_tensorflow(function: Callable, x: Tensor, y: Tensor) -> Tensor:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        value = function(x, y)
    return tape.gradient(value, x, unconnected_gradients="zero")


def _of_torch(function: Callable, x: Tensor, y: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    value = function(x, y)
    if not value.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(value, x, allow_unused=True, materialize_grads=True)[0]
