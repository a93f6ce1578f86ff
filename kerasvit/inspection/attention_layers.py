"""Runs a model and reads the weights of its attention layers."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from kerasvit.backend.keras_internals import layers_in, without_flash_attention
from kerasvit.typing import Tensor

# Receives a layer, the shape of its input, and its weights as a tensor.
Reader = Callable[[keras.layers.Layer, tuple[int, ...], Tensor], None]


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


def run_and_read(
    model: keras.Model, x: Any, layers: list[keras.layers.Layer], read: Reader
) -> None:
    """Calls a model with `training=False` and passes attention weights to `read`.

    The model runs eagerly, and no variable changes. Attention is computed without fused
    kernels, and no block is rematerialised.

    Args:
        model: Built `keras.Model`.
        x: Batch of inputs.
        layers: Layers of `attention_layers`, whose weights are read in the order in
            which the model calls them.
        read: Function of a layer, the shape of its input, and its weights.
    """
    # Detached values: PyTorch would keep all activations for a backward pass.
    trainable, other = (
        [ops.stop_gradient(v.value) for v in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    )
    with _read_by(read, layers), _not_rematerialized(model):
        with without_flash_attention(layers):
            model.stateless_call(trainable, other, x, training=False)


@contextlib.contextmanager
def _read_by(read: Reader, layers: list[keras.layers.Layer]) -> Iterator[None]:
    """Context in which the layers' calls pass their weights to `read`."""
    with contextlib.ExitStack() as stack:
        for layer in layers:
            if isinstance(layer, keras.layers.MultiHeadAttention):
                call = _call_with_scores(layer, read)
            else:
                call = _call_with_weights(layer, read)
            stack.enter_context(_replaced(layer, "call", call))
        yield


def _call_with_weights(layer: keras.layers.Layer, read: Reader) -> Callable:
    call, parameters = layer.call, inspect.signature(layer.call)

    def reading_call(*args: Any, **kwargs: Any) -> Any:
        arguments = parameters.bind(*args, **kwargs).arguments
        arguments.pop("training", None)
        shape = next(iter(arguments.values())).shape
        read(layer, tuple(shape), layer.attention_weights(**arguments))
        return call(*args, **kwargs)

    return reading_call


def _call_with_scores(layer: keras.layers.Layer, read: Reader) -> Callable:
    call, parameters = layer.call, inspect.signature(layer.call)

    def reading_call(*args: Any, **kwargs: Any) -> Any:
        arguments = parameters.bind(*args, **kwargs).arguments
        wanted = arguments.pop("return_attention_scores", False)
        output, scores = call(**arguments, return_attention_scores=True)
        read(layer, tuple(arguments["query"].shape), scores)
        return (output, scores) if wanted else output

    return reading_call


@contextlib.contextmanager
def _not_rematerialized(model: keras.Model) -> Iterator[None]:
    """Context in which layers run as if built outside of `keras.RematScope`.

    JAX would trace them, so that the weights had no values.
    """

    def plain(call: Callable, *args: Any, **kwargs: Any) -> Callable:
        return call

    with contextlib.ExitStack() as stack:
        for layer in layers_in(model):
            stack.enter_context(_replaced(layer, "rematerialized_call", plain))
        yield


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
