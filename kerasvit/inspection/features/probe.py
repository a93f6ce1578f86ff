"""A layer that returns what layers inside another layer compute."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasvit.backend.threads import seen_here
from kerasvit.types import Tensor


class Probe(keras.layers.Layer):
    """Calls a layer, and returns the outputs or inputs of layers inside it.

    Args:
        layer: Built layer with one input.
        inside: Layers inside it, at any depth.
        at: "outputs" or "inputs".

    Attributes:
        order: Paths of the layers inside, in the order of the returned tensors: that in
            which they end for outputs, and begin for inputs.

    Raises:
        ValueError: A layer inside is not called exactly once.
    """

    def __init__(
        self, layer: keras.layers.Layer, inside: list[keras.layers.Layer], at: str
    ) -> None:
        super().__init__(autocast=False)
        self.layer = layer
        self.inside = inside
        self.at = at
        self.order: tuple[str, ...] = ()

    def call(self, x: Any) -> list[Tensor]:
        seen: list[tuple[str, Tensor]] = []
        watched = functools.partial(_watched, seen, self.at)
        with seen_here((i, "call", functools.partial(watched, i)) for i in self.inside):
            self.layer(x)
        self.order = tuple(path for path, _ in seen)
        paths = map(path_of, self.inside)
        wrong = [path for path in paths if self.order.count(path) != 1]
        if wrong:
            raise ValueError(
                "A chosen layer must be called exactly once. This is not so for "
                f"{wrong[:3]}: it is unused, called several times or quantised. "
                "Choose others with `layers`."
            )
        return [tensor for _, tensor in seen]


def _watched(
    seen: list[tuple[str, Tensor]],
    at: str,
    layer: keras.layers.Layer,
    original: Callable,
) -> Callable:
    """Returns a `call` of a layer that is recorded as (path, tensor)."""

    @functools.wraps(original)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if at == "inputs":
            seen.append((path_of(layer), x))
        outputs = original(x, *args, **kwargs)
        if at == "outputs":
            # On PyTorch a ReLU may overwrite them.
            seen.append((path_of(layer), keras.tree.map_structure(ops.copy, outputs)))
        return outputs

    return call


def path_of(layer: keras.layers.Layer) -> str:
    """Returns the path of a layer; its name if it has no `build` and so no path."""
    return layer.path or layer.name
