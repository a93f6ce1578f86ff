"""Intermediate features of a functional model, in the order of depth."""

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, check_built, one_of
from kerasvit.backend.forward import outputs_of
from kerasvit.backend.keras_private import (
    in_variable_dtype,
    layer_calls,
    layers_in,
)
from kerasvit.backend.threads import seen_here, using
from kerasvit.inspection.attention.patch_grid import largest_grid
from kerasvit.patterns import ENCODER_BLOCK, STAGE_BLOCK, found_in
from kerasvit.types import Shape, Tensor

from .images import check_images, image_batches

#: Regular expression of the blocks and units of the models of this package.
BLOCKS = f"({ENCODER_BLOCK}|{STAGE_BLOCK})$"


class Activations:
    """Features of chosen layers of a functional model.

        activations = Activations(model)
        for features in activations.batches(x):  # one array per name

    The model runs with `training=False` and computes in the dtype of its variables,
    also under the policy `mixed_bfloat16`. No variable is changed. Measurements take
    `Activations` in place of the model, for other layers than its blocks.

    Args:
        model: Built functional or Sequential `keras.Model` with one input.
        layers: Regular expression that is searched in the paths of all layers, at any
            depth: "encoder_block_3$", "attention$", "mlp/dense_0$". Paths are those of
            the variables. Default: the blocks and units of kerasvit's models.
        at: "outputs" of the layers, or "inputs". The inputs of the normalisations,
            `layers="_norm$", at="inputs"`, are the residual stream of a pre-norm
            Transformer before and after each branch.
        grid: (h, w), cells of the map that the tokens form. None: the attribute `grid`
            of the model's layers, such as its position embedding, of several the
            largest that fits; the tokens before those of the grid are the class,
            distillation and register tokens.
        prefix: With `grid`, the number of such tokens.

    Attributes:
        names: Paths of the chosen layers, from the input to the output.
        model: `keras.Model` from the input to the list of all features.
        source: The given model.

    Raises:
        ValueError: `model` is not functional or not built, a layer that is called
            several times is chosen, or none; the message names similar paths.
    """

    def __init__(
        self,
        model: keras.Model,
        layers: str = BLOCKS,
        *,
        at: str = "outputs",
        grid: tuple[int, int] | None = None,
        prefix: int = 0,
    ) -> None:
        check_functional(model)
        one_of("at", at, ("outputs", "inputs"))
        with using(model.variables):  # it calls layers
            found = _features(model, layers, at)
        self.names = [path for path, _ in found]
        _check_distinct(self.names)
        self.model = keras.Model(model.inputs[0], [tensor for _, tensor in found])
        self.source = model
        self._grids = _grids_of(model) if grid is None else {grid}
        self._lengths = _lengths(model)
        if grid is not None:
            self._lengths = {prefix + math.prod(grid)}

    def __call__(self, images: Any) -> list[np.ndarray]:
        """Returns the features of one batch of images, one float array per name.

        Raises:
            ValueError: The images have another size than the model is built for, or
                features are NaN or infinite; the message names the layer.
        """
        check_images(self.source, images)
        with in_variable_dtype(self.source):
            found = outputs_of(self.model, images)
        arrays = [np.asarray(each) for each in keras.tree.flatten(found)]
        for name, array in zip(self.names, arrays, strict=True):
            if not np.isfinite(array).all():
                raise ValueError(
                    f"The features of {name!r} must be finite. Received: Inf or NaN. "
                    "Check the images and the weights for Inf and NaN."
                )
        return arrays

    def batches(self, x: Any, batch_size: int = 32) -> Iterator[list[np.ndarray]]:
        """Yields the features of all images, batch by batch; see `image_batches`."""
        return map(self, image_batches(x, batch_size))

    def maps(self, x: Any, batch_size: int = 32) -> Iterator[list[np.ndarray]]:
        """Yields feature maps, (batch, h, w, channels), without prefix tokens.

        Tokens (batch, prefix + h·w, channels) become a map of the grid, by rows.

        Raises:
            ValueError: Features are neither maps nor tokens, or no grid is known.
        """
        layouts = self.layouts()
        for arrays in self.batches(x, batch_size):
            yield [
                array
                if prefix is None
                else array[:, prefix:].reshape(len(array), *grid, -1)
                for array, (grid, prefix) in zip(arrays, layouts, strict=True)
            ]

    def layouts(self) -> list[tuple[tuple[int, int], int | None]]:
        """Returns the grid (h, w) of all features, and their number of prefix tokens.

        The latter is None for features that already are maps.

        Raises:
            ValueError: As for `maps`.
        """
        shapes = [tensor.shape for tensor in self.model.outputs]
        return [*map(self._layout, self.names, shapes)]

    def _layout(self, name: str, shape: Shape) -> tuple[tuple[int, int], int | None]:
        if len(shape) == 4:
            return shape[1:3], None
        if len(shape) == 3 and shape[1] is None:
            raise ValueError(
                f"The features of {name!r} are tokens of images of any size, whose "
                "grid is not known. Take `kerasvit.resize(model, size)`."
            )
        if len(shape) == 3 and not self._grids:
            raise ValueError(
                f"The features of {name!r} are tokens {shape}, and the layers of the "
                "model do not tell their grid. Pass `grid=(h, w)` and `prefix`."
            )
        known = len(shape) == 3 and shape[1] in self._lengths
        grid = largest_grid(self._grids, shape[1]) if known else None
        if grid is None:
            raise ValueError(
                f"The features of {name!r} must be a map (batch, h, w, channels), or "
                f"tokens (batch, n, channels) with n in {sorted(self._lengths)}. "
                f"Received: shape {shape}. Choose others with `layers`."
            )
        return grid, shape[1] - math.prod(grid)


class Probe(keras.layers.Layer):
    """Calls a layer, and returns the outputs or inputs of layers inside it.

    Args:
        layer: Built layer with one input, or a block, which may have positions beside.
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

    def call(self, x: Any, *positions: Any) -> list[Tensor]:
        seen: list[tuple[str, Tensor]] = []
        watched = functools.partial(_watched, seen, self.at)
        with seen_here((i, "call", functools.partial(watched, i)) for i in self.inside):
            self.layer(x, *positions)
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


def activations_of(model: Any) -> Activations:
    """Returns `Activations`, of its blocks if `model` is a `keras.Model`."""
    return model if isinstance(model, Activations) else Activations(model)


def _features(model: keras.Model, pattern: str, at: str) -> list[tuple[str, Tensor]]:
    """Returns (path, tensor) of the chosen layers, in the order of their calls."""
    features: list[tuple[str, Tensor]] = []
    for (outer, inputs, outputs), chosen in _chosen(model, pattern):
        inside = [layer for layer in chosen if layer is not outer]
        own = within = []
        # What a block takes beside its tokens are positions.
        takes_positions = "positions" in inspect.signature(outer.call).parameters
        tokens = inputs[:1] if takes_positions else inputs
        if outer in chosen:
            tensor = _one(outer, tokens if at == "inputs" else outputs)
            own = [(path_of(outer), tensor)]
        if inside:
            others = inputs[len(tokens) :]
            within = _inside(outer, [_one(outer, tokens), *others], inside, at)
        # A layer begins before and ends after the layers inside it.
        features += own + within if at == "inputs" else within + own
    return features


def _chosen(
    model: keras.Model, pattern: str
) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Returns the calls of layers with chosen ones among the layer and those inside."""
    calls = layer_calls(model)
    trees = [layers_in(layer) for layer, _, _ in calls]
    paths = [path_of(each) for tree in trees for each in tree]
    hint = " Choose others with `Activations(model, layers)`."
    matches = found_in("layers", pattern, paths, "a layer", hint)
    chosen = [[each for each in tree if matches(path_of(each))] for tree in trees]
    return [pair for pair in zip(calls, chosen, strict=True) if pair[1]]


def _one(layer: keras.layers.Layer, tensors: list[Tensor]) -> Tensor:
    """Returns the only tensor of a list."""
    if len(tensors) != 1:
        raise ArgumentError(
            "A chosen layer must have one input and one output. Received: "
            f"{path_of(layer)!r} with {len(tensors)}. Choose others with `layers`.",
            "layers",
        )
    return tensors[0]


def _inside(
    outer: keras.layers.Layer,
    inputs: list[Tensor],
    inside: list[keras.layers.Layer],
    at: str,
) -> list[tuple[str, Tensor]]:
    """Returns (path, tensor) of layers inside a layer that is called with `inputs`."""
    probe = Probe(outer, inside, at)
    tensors = keras.tree.flatten(probe(*inputs))
    return list(zip(probe.order, tensors, strict=True))


def _check_distinct(names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ArgumentError(
            "A chosen layer must be called once, and have a path of its own. This is "
            f"not so for {repeated[:3]}. Choose others with `layers`.",
            "layers",
        )


def _grids_of(model: keras.Model) -> set[tuple[int, int]]:
    """Returns the grids of the layers, of which a model with stages has several."""
    return {tuple(each.grid) for each in layers_in(model) if hasattr(each, "grid")}


def _lengths(model: keras.Model) -> set[int]:
    """Returns the numbers of tokens between the layers of the model."""
    outputs = [each for _, _, outputs in layer_calls(model) for each in outputs]
    return {each.shape[1] for each in outputs if len(each.shape) == 3}


def check_functional(model: Any) -> None:
    """Checks that a model is built, functional, channels-last and has one input.

    Raises:
        ValueError: It is not.
    """
    check_built(model)
    inputs = getattr(model, "inputs", None)
    if not isinstance(inputs, list) or len(inputs) != 1:
        inner = getattr(model, "model", None)
        hint = " Pass its `.model`." if isinstance(inner, keras.Model) else ""
        raise ArgumentError(
            "`model` must be a functional or Sequential keras.Model with one input, "
            f"whose layers can be told apart. Received: model={model!r}.{hint}",
            "model",
        )
    first = [getattr(each, "data_format", None) for each in layers_in(model)]
    if "channels_first" in first:
        raise ArgumentError(
            "`model` must compute with channels last: (batch, h, w, channels). "
            'Received: a model with layers of data_format="channels_first".',
            "model",
        )
