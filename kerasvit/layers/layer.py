"""Bases of layers, and what several layers need of Keras."""

from collections.abc import Callable
from typing import Any

import keras

from kerasvit.arguments import ArgumentError
from kerasvit.ops import BackendLayer, rematerialized

MAX_BYTES = 2**28  # a Swin-L's tables have 2 MB


class Layer(BackendLayer):
    """Base of layers that others call, which PyTorch does without Keras's bookkeeping.

    It is `keras.Layer` on the other backends.
    """


class Block(Layer):
    """A layer that Keras can rematerialise on every backend.

    If it was constructed in `keras.RematScope("list_of_layers", layer_names=…)`, which
    names it, training stores its inputs instead of the activations inside, and computes
    these again in the backward pass.
    """

    def rematerialized_call(
        self, layer_call: Callable, *args: Any, **kwargs: Any
    ) -> Callable:
        """Returns the method that Keras calls instead of `call` or `quantized_call`."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is layer_call:
            return layer_call  # the scope does not have this layer
        return rematerialized(self, layer_call)


def serialize(layer: keras.layers.Layer | None) -> dict[str, Any] | None:
    """Serialises a sublayer without its build shape; None for None.

    If deserialisation built the sublayer, the paths of its variables would lack the
    name of the outer layer.
    """
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config


def deserialize(config: dict[str, Any] | None) -> Any:
    """Deserialises a sublayer; None for None."""
    return config and keras.saving.deserialize_keras_object(config)


def check_table_size(size: int, *arguments: str) -> None:
    """Checks the size of a table before it takes memory.

    Args:
        size: Size of the table in bytes.
        *arguments: Names of the arguments that it depends on.

    Raises:
        ArgumentError: The table is larger than any model's.
    """
    if size > MAX_BYTES:
        raise ArgumentError(
            f"{' and '.join(f'`{name}`' for name in arguments)} ask for a table of "
            f"{size:,} bytes; layers compute at most {MAX_BYTES:,}. Choose smaller "
            "ones.",
            *arguments,
        )
