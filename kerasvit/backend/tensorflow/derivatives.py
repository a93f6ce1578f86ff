"""First and second derivatives of a loss by the weights, on TensorFlow."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from kerasvit.backend.tensorflow.scope import PassScope
from kerasvit.backend.threads import seen_here
from kerasvit.types import LossDerivatives, Tensor


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Same as in `torch/derivatives.py`; compiles the function once per shape."""

    @tf.function
    def value(values: list[Tensor], *args: Any) -> Tensor:
        with _scope(variables, values, None):
            return function(*args)

    return value


def gradients_at(
    variables: list[keras.Variable], function: Callable[..., Tensor], count: int
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Same as in `torch/derivatives.py`; compiles the function once per shape."""

    @tf.function
    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        weights = [tf.identity(value) for value in values[:count]]
        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            _scope(variables, [*weights, *values[count:]], tape),
        ):
            tape.watch(weights)
            value = function(*args)
            found = tape.gradient(
                value, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        # The gradient of an embedding is a sparse `tf.IndexedSlices`.
        return value, [tf.convert_to_tensor(gradient) for gradient in found]

    return gradients


def _scope(
    variables: list[keras.Variable], values: list[Tensor], tape: Any
) -> PassScope:
    scope = PassScope((), tape)
    # `__init__` would round values of another dtype to that of their variable.
    ids = map(id, variables)
    scope.state_mapping = dict(zip(ids, values, strict=True))
    return scope


def loss_derivatives(
    model: keras.Model,
    variables: list[keras.Variable],
    loss: Callable[[Any, Any], Tensor],
) -> LossDerivatives:
    """Same as in `torch/derivatives.py`; compiles the loss once per shape."""
    zero = tf.UnconnectedGradients.ZERO

    @tf.function
    def derivatives(
        vector: list[Tensor], x: Any, y: Any
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        weights = [tf.convert_to_tensor(v.value) for v in variables]
        mapping = zip(variables, weights, strict=True)
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(weights)
            with (
                tf.GradientTape(watch_accessed_variables=False) as inner,
                PassScope(mapping, inner),
                twice_differentiable_moments(),
            ):
                inner.watch(weights)
                value = loss(x, y)
                gradients = inner.gradient(value, weights, unconnected_gradients=zero)
            # The gradient of an embedding is a sparse `tf.IndexedSlices`.
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        products = outer.gradient(
            gradients, weights, output_gradients=vector, unconnected_gradients=zero
        )
        return value, gradients, [tf.convert_to_tensor(part) for part in products]

    return derivatives


@contextlib.contextmanager
def twice_differentiable_moments() -> Iterator[None]:
    """Context in which the thread traces `tf.nn.moments` with right second derivatives.

    TensorFlow's version stops the gradient through the mean within the variance. The
    first derivative of the variance by the mean is 0, so that training is correct, but
    the second is not 0. The Keras layers LayerNormalization, GroupNormalization and, in
    training, BatchNormalization compute their statistics with it.
    """
    with seen_here([(tf.nn, "moments", lambda _: _moments)]):
        yield


def _moments(
    x: Tensor,
    axes: Any,
    shift: Tensor | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    mean = tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), axes, keepdims=keepdims)
    return mean if keepdims else tf.squeeze(mean, axes), variance


def input_gradient(
    model: keras.Model, function: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Same as in `torch/derivatives.py`."""

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            value = function(x, y)
        return tape.gradient(value, x, unconnected_gradients="zero")

    return gradient
