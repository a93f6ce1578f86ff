"""Accuracy of a classifier without a block, a residual branch or an attention head."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.backend.forward import array_of
from kerasvit.backend.keras_private import layers_in
from kerasvit.backend.threads import using
from kerasvit.patterns import found_in

from .accuracy import accuracy, check_labels
from .activations import BLOCKS, check_functional, path_of
from .images import check_images

# Residual branches of blocks, with the last layer of each: its weights at 0 make it 0.
LAST = {
    "attention": "output_dense",
    "mlp": "dense_1",
    "token_mixing": "dense_1",
    "channel_mixing": "dense_1",
}


@dataclass(frozen=True)
class Lesions:
    """Accuracy of a model without one of its parts.

    Args:
        clean: Accuracy of the whole model, in [0, 1].
        accuracies: Accuracy without each part, by the path of the part, in the order of
            depth.
    """

    clean: float
    accuracies: dict[str, float]


def lesion(
    model: keras.Model,
    x: np.ndarray,
    y: np.ndarray,
    *,
    what: str = "block",
    layers: str = BLOCKS,
    batch_size: int = 32,
) -> Lesions:
    """Returns the accuracy of a classifier without each of its parts.

    One part at a time is removed by weights of 0 in its last layer, on a copy of the
    model: its memory is that of the weights once more, and `model` is never changed.

    Args:
        model: Built functional `keras.Model` with blocks of kerasvit, from images to
            (batch, classes). Its layers must be serialisable, for the copy.
        x: Images (N, H, W, C) as the model takes them.
        y: Class indices (N,).
        what: Part to remove. "block": all residual branches of a block, of which the
            shortcut is left: the identity; the projection where a block changes the
            size; and the normalisations of post-norm blocks. "attention": the attention
            branch. "mlp": an MLP's branch; for Mixers the token mixing and the channel
            mixing, one after the other. "head": one head's part of the attention's
            output; its bias, which is common to all heads, is left.
        layers: Regular expression that is searched in the paths of blocks.
        batch_size: Number of images per batch; it does not change the result.

    Raises:
        ValueError: Images or labels do not fit to the model or to each other, no layer
            matches `layers`, or none that matches has the part; its weights are
            quantised.

    Reference: Veit et al. 2016, arXiv 1605.06431, section 4.1 (blocks); Michel et al.
    2019, arXiv 1905.10650, section 3 (heads); Park and Kim 2022, arXiv 2202.06709.
    """
    one_of("what", what, ("block", "attention", "mlp", "head"))
    integer("batch_size", batch_size, 1)
    check_functional(model)
    check_images(model, x)
    y = check_labels(model, y, len(x))
    next(_parts(model, what, layers))  # its errors come before the copy
    copy = keras.models.clone_model(model)
    with using(model.variables):
        copy.set_weights([*map(array_of, model.weights)])
    clean = accuracy(copy.predict_on_batch, x, y, batch_size)
    accuracies = {}
    for path, values in _parts(copy, what, layers):
        before = [ops.convert_to_numpy(v).copy() for v, _ in values]
        for variable, value in values:
            variable.assign(value)
        accuracies[path] = accuracy(copy.predict_on_batch, x, y, batch_size)
        for (variable, _), value in zip(values, before, strict=True):
            variable.assign(value)
    return Lesions(clean, accuracies)


Values = list[tuple[keras.Variable, np.ndarray]]


def _parts(model: keras.Model, what: str, pattern: str) -> Iterator[tuple[str, Values]]:
    """Yields the path of each part, and the values of variables that remove it."""
    layers = layers_in(model, include_self=False)
    matches = found_in("layers", pattern, list(map(path_of, layers)), "a layer")
    found = False
    for block in layers:
        if not matches(path_of(block)):
            continue
        for path, values in _parts_of(block, what):
            found = True
            yield path, values
    if not found:
        raise ArgumentError(
            f"The layers that `layers` chooses must be kerasvit's blocks with "
            f"`what={what!r}`. Received: none. Choose another part, or other layers.",
            "what",
            "layers",
        )


def _parts_of(block: keras.layers.Layer, what: str) -> Iterator[tuple[str, Values]]:
    path, branches = path_of(block), _branches(block)
    if what == "block":
        if branches:
            yield path, [pair for ends in branches.values() for pair in _zeros(ends)]
    elif what == "head":
        if "attention" in branches:
            for head in range(block.attention.num_heads):
                values = _without_head(block.attention, head)
                yield f"{path}/attention/head_{head}", values
    else:
        for name in LAST:
            if name in branches and (name == "attention") == (what == "attention"):
                yield f"{path}/{name}", _zeros(branches[name])


def _branches(block: keras.layers.Layer) -> dict[str, list[keras.layers.Layer]]:
    """Returns the residual branches of a block, each with its last layers."""
    branches = {
        name: [getattr(getattr(block, name), last)]
        for name, last in LAST.items()
        if hasattr(getattr(block, name, None), last)
    }
    if not branches and hasattr(block, "convs"):
        # The convolution comes last in pre-activation units, else the normalisation.
        branches["convs"] = [block.convs[-1], block.norms[-1]]
    return branches


def _zeros(layers: Iterable[keras.layers.Layer]) -> Values:
    """Returns zeros for all weights of layers but moving statistics."""
    for layer in layers:
        _check_not_quantised(layer)
    return [
        (variable, np.zeros(variable.shape))
        for layer in layers
        for variable in layer.weights
        if "moving_" not in variable.name
    ]


def _without_head(attention: keras.layers.Layer, head: int) -> Values:
    """Returns weights of the output layer without the rows of a head."""
    output = attention.output_dense
    _check_not_quantised(output)
    values = []
    for variable in output.weights:
        if variable.name in ("kernel", "lora_kernel_a"):  # (heads · size, ...)
            value = ops.convert_to_numpy(variable).copy()
            value.reshape(attention.num_heads, -1, value.shape[-1])[head] = 0
            values.append((variable, value))
    return values


def _check_not_quantised(layer: keras.layers.Layer) -> None:
    if layer.quantization_mode is not None:
        raise ValueError(
            f"The weights of {path_of(layer)!r} must not be quantised. Received: "
            f"{layer.quantization_mode}. Take the model before `quantize`."
        )
