"""Bases of layers, and what several layers need of Keras."""

import inspect
from collections.abc import Callable
from typing import Any

import keras

from kerasvit.arguments import ArgumentError
from kerasvit.ops import BackendLayer, rematerialized
from kerasvit.types import Shape, Tensor

MAX_BYTES = 2**28  # a Swin-L's tables have 2 MB


class Roundable:
    """A layer with operations whose operands may be rounded; a base before Keras's.

    Attributes:
        rounding: Function of an operation and {name: operand} that returns its result,
            as `kerasvit.quantization.simulate` sets it. None: no operand is rounded.
    """

    rounding: Callable[[Callable, dict[str, Tensor]], Tensor] | None = None

    def operate(self, operation: Callable, **operands: Tensor) -> Tensor:
        """Returns the result of an operation with `operands`, in this order."""
        if self.rounding is None:
            return operation(*operands.values())
        return self.rounding(operation, operands)


class InnerLayer(Roundable, BackendLayer):
    """Base of layers that others call, which PyTorch does without Keras's bookkeeping.

    It is `keras.Layer` on the other backends.
    """


class OwnLayer:
    """What our layers have in common; a base class before one of Keras.

    The constructor's arguments are attributes of the same names. Layers among them are
    built with the outer layer.
    """

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the input, which most layers do not change."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, layers as configurations."""
        config = super().get_config()  # type: ignore[misc]
        for cls in type(self).__mro__:
            if issubclass(cls, OwnLayer) and "__init__" in vars(cls):
                names = inspect.signature(cls.__init__).parameters
                found = {n: getattr(self, n) for n in names if hasattr(self, n)}
                config |= {name: _serialized(value) for name, value in found.items()}
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Builds the layer, and those in it, from what `get_config` returned."""
        config = {name: _deserialized(value) for name, value in config.items()}
        return super().from_config(config)  # type: ignore[misc]


class Layer(OwnLayer, InnerLayer):
    """Base of our layers that others call."""


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


def _serialized(value: Any) -> Any:
    """Returns an argument's value, a layer as its configuration.

    If deserialisation built the layer, the paths of its variables would lack the name
    of the outer layer: its build shape is left out.
    """
    if isinstance(value, list):
        return [_serialized(part) for part in value]
    if not isinstance(value, keras.layers.Layer):
        return value
    config = keras.saving.serialize_keras_object(value)
    config.pop("build_config", None)
    return config


def _deserialized(value: Any) -> Any:
    if isinstance(value, list):
        return [_deserialized(part) for part in value]
    is_layer = isinstance(value, dict) and "class_name" in value
    return keras.saving.deserialize_keras_object(value) if is_layer else value


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
