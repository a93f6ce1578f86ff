"""Runs a model and reads the weights of its attention layers."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.backend.forward import outputs_of
from kerasvit.backend.keras_private import (
    in_variable_dtype,
    layers_in,
    without_flash_attention,
)
from kerasvit.backend.threads import seen_here
from kerasvit.types import Shape, Tensor

# Layer, shape of its input, and its weights.
Call = tuple[keras.layers.Layer, Shape, np.ndarray]


def attention_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that give attention weights, at any depth.

    These are `keras.layers.MultiHeadAttention` and layers with a method
    `attention_weights`, which takes the inputs of `call` and returns weights (batch,
    heads, queries, keys). Of attention within windows it returns (batch, windows,
    heads, cells, cells), and a method `window_cells(height, width)` the indices of the
    cells in the map (windows, cells).
    """
    return [
        layer
        for layer in layers_in(model)
        if isinstance(layer, keras.layers.MultiHeadAttention)
        or callable(getattr(layer, "attention_weights", None))
    ]


def read_attention(
    model: keras.Model,
    layers: list[keras.layers.Layer],
    images: np.ndarray,
    batch_size: int,
) -> Iterator[list[Call]]:
    """Yields the calls of attention layers, in their order, for each batch of images.

    The model runs with `training=False`, in the dtype of its variables, with explicit
    instead of fused attention and without rematerialisation, and its variables do not
    change. Keras compiles it as in `predict`, once: the last batch is filled up.

    Args:
        model: Built `keras.Model`.
        layers: Layers of `attention_layers`.
        images: (images, ...), at least one.
        batch_size: Largest number of images in a batch.
    """
    reader = AttentionReader(model, layers)
    size = min(batch_size, len(images))
    for start in range(0, len(images), size):
        batch = images.take(range(start, start + size), axis=0, mode="clip")
        with in_variable_dtype(reader):
            arrays = outputs_of(reader, batch)
        rows = slice(len(images) - start)
        yield [
            (layer, shape, array[rows])
            for (layer, shape), array in zip(reader.calls, arrays, strict=True)
        ]


class AttentionReader(keras.Model):
    """Returns the weights of a model's attention layers instead of its outputs.

    Attributes:
        calls: After a prediction, the layer and the shape of the input of each call.
    """

    def __init__(self, model: keras.Model, layers: list[keras.layers.Layer]) -> None:
        super().__init__(name="attention_reader")
        self.model = model
        self.calls: tuple[tuple[keras.layers.Layer, Shape], ...] = ()
        self._chosen = tuple(layers)
        self.built = True

    def call(self, x: Any) -> list[Tensor]:
        found = []

        def read(layer: keras.layers.Layer, shape: Shape, weights: Tensor) -> None:
            at_least = keras.backend.result_type(weights.dtype, "float32")
            found.append((layer, tuple(shape), ops.cast(weights, at_least)))

        # JAX and TensorFlow cannot return tensors from a rematerialised function.
        changes: list[tuple[Any, str, Callable]] = [
            (layer, "rematerialized_call", lambda _: lambda call, *args, **kwargs: call)
            for layer in layers_in(self.model)
        ]
        changes += [
            (layer, "call", functools.partial(_reading, layer, read))
            for layer in self._chosen
        ]
        with seen_here(changes):
            self.model(x, training=False)
        self.calls = tuple((layer, shape) for layer, shape, _ in found)
        return [weights for *_, weights in found]


def _reading(
    layer: keras.layers.Layer, read: Callable[..., Any], call: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a `call` of a layer that also passes the weights to `read`."""

    def with_scores(*args: Any, **kwargs: Any) -> Any:
        options = {**kwargs, "return_attention_scores": True}
        output, scores = without_flash_attention(call)(*args, **options)
        read(layer, (args[0] if args else kwargs["query"]).shape, scores)
        wanted = kwargs.get("return_attention_scores", False)
        return (output, scores) if wanted else output

    def with_weights(*args: Any, **kwargs: Any) -> Any:
        inputs = {name: x for name, x in kwargs.items() if name != "training"}
        first, *_ = (*args, *inputs.values())
        read(layer, first.shape, layer.attention_weights(*args, **inputs))
        return call(*args, **kwargs)

    keras_layer = isinstance(layer, keras.layers.MultiHeadAttention)
    return with_scores if keras_layer else with_weights
