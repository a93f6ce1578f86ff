"""Runs a model and reads the weights of its attention layers."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.backend.keras_internals import (
    in_variable_dtype,
    layers_in,
    without_flash_attention,
)
from kerasvit.typing import Shape, Tensor

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
            arrays = reader.predict_on_batch(batch)
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

        with contextlib.ExitStack() as stack:
            stack.enter_context(without_flash_attention(self._chosen))
            for layer in layers_in(self.model):
                stack.enter_context(_replaced(layer, "rematerialized_call", _plain))
            for layer in self._chosen:
                stack.enter_context(_replaced(layer, "call", _reading(layer, read)))
            self.model(x, training=False)
        self.calls = tuple((layer, shape) for layer, shape, _ in found)
        return [weights for *_, weights in found]


def _reading(layer: keras.layers.Layer, read: Callable) -> Callable:
    """Returns a `call` that also passes the weights to `read`."""
    call = layer.call

    def with_scores(*args: Any, **kwargs: Any) -> Any:
        output, scores = call(*args, **{**kwargs, "return_attention_scores": True})
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


def _plain(call: Callable, *args: Any, **kwargs: Any) -> Callable:
    # JAX and TensorFlow cannot return tensors from within a rematerialised function.
    return call


@contextlib.contextmanager
def _replaced(layer: keras.layers.Layer, name: str, method: Callable) -> Iterator[None]:
    """Context in which one layer has another method, not tracked by Keras."""
    own = vars(layer)
    before = {name: own[name]} if name in own else {}
    own[name] = method
    try:
        yield
    finally:
        del own[name]
        own.update(before)
