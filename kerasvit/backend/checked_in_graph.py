"""A check of values that are known only when a graph runs."""

from collections.abc import Iterable
from typing import Any

import keras

from kerasvit.typing import Tensor

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf


def checked_in_graph(
    x: Tensor, conditions: Iterable[Any], message: str, *values: Any
) -> Tensor:
    """Returns `x`, which in a graph of TensorFlow exists only under conditions.

    Otherwise the graph raises `InvalidArgumentError` with the message and the values.
    XLA leaves the check out. The other backends know all sizes when they trace.
    """
    if keras.backend.backend() != "tensorflow":
        return x
    checks = [
        tf.debugging.Assert(condition, [message, "Received:", *values])
        for condition in conditions
    ]
    with tf.control_dependencies(checks):
        return tf.identity(x)
