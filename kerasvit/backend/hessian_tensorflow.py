"""Second derivatives of a loss on TensorFlow."""

import contextlib

import tensorflow as tf

from .scope_tensorflow import PassScope


def loss_derivatives(model, variables, loss):
    """As in `hessian_torch.py`; compiles the loss once per shape."""
    zero = tf.UnconnectedGradients.ZERO

    @tf.function
    def derivatives(vector, x, y):
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
            # An embedding's gradient comes as rows.
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            slope = tf.add_n(
                [
                    tf.reduce_sum(gradient * part)
                    for gradient, part in zip(gradients, vector, strict=True)
                ]
            )
        products = outer.gradient(slope, weights, unconnected_gradients=zero)
        return value, gradients, [tf.convert_to_tensor(part) for part in products]

    return derivatives


@contextlib.contextmanager
def twice_differentiable_moments():
    """Context in which `tf.nn.moments` is traced with correct second derivatives.

    TensorFlow's stops the gradient through the mean within the variance. The first
    derivative of the variance by the mean is 0, so training is not hurt, but the second
    is not. Of Keras's layers, LayerNormalization, GroupNormalization and, in training,
    BatchNormalization take their statistics from it.
    """
    of_tensorflow = tf.nn.moments
    tf.nn.moments = _moments
    try:
        yield
    finally:
        tf.nn.moments = of_tensorflow


def _moments(x, axes, shift=None, keepdims=False, name=None):
    mean = tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), axes, keepdims=keepdims)
    return mean if keepdims else tf.squeeze(mean, axes), variance
