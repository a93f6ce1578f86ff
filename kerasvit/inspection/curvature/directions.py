"""Directions in the space of a model's weights, for pictures of its loss."""

import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import layers

from kerasvit.arguments import ArgumentError, check_built, integer, one_of
from kerasvit.backend.forward import array_of
from kerasvit.backend.keras_private import owners

from .mean_loss import chosen_variables

NORMALIZATIONS = ("filter", "layer", "how-do-vits-work")
POSITIONS = "position_embedding/|position_bias"
DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)
TRANSPOSED = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)


def random_direction(
    model: keras.Model, normalization: str = "filter", *, seed: int = 0
) -> dict[str, np.ndarray]:
    """Returns a random direction, scaled to the model's weights.

    Models of the same variables get the same Gaussian numbers from the same seed, each
    scaled to its own weights.

    Args:
        model: Built `keras.Model`; the direction has its trainable variables.
        normalization: As for `normalized_direction`.
        seed: Seed of the Gaussian numbers, ≥ 0.

    Returns:
        {path of the variable: array of its shape}.

    Raises:
        ValueError: An argument is out of its range, or as for `Hessian`, for the model.
    """
    generator = np.random.default_rng(integer("seed", seed, 0))
    raw = {
        variable.path: generator.standard_normal(variable.shape)
        for variable in chosen_variables(model)
    }
    return normalized_direction(model, raw, normalization)


def normalized_direction(
    model: keras.Model, direction: Mapping[str, Any], normalization: str = "filter"
) -> dict[str, np.ndarray]:
    """Returns a direction scaled to the model's weights.

    In all three ways, variables of one axis or none, which are biases and the scales of
    normalisations, do not move.

    Args:
        model: Built `keras.Model`.
        direction: {path of a trainable variable: array of its shape}.
        normalization: "filter", of Li et al.: each filter has the norm of the weights'
            filter; it is what one output unit or channel sees of the input. "layer":
            each variable has the norm of the weights. "how-do-vits-work": as this
            repository does it, the norms are those over the output axis, for each
            position of the input, and tables of positions do not move.

    Returns:
        {path: array}.

    Raises:
        ValueError: `normalization` is another one; a path or a shape is not that of a
            trainable variable.

    References: Li et al. 2018, arXiv 1712.09913, section 4, and `net_plotter.py` of
    tomgoldstein/loss-landscape; `ops/loss_landscapes.py` of xxxnell/how-do-vits-work,
    with its 1e-7 added to the norm of the direction.
    """
    one_of("normalization", normalization, NORMALIZATIONS)
    chosen = {variable.path: variable for variable in chosen_variables(model)}
    check_direction(direction, chosen)
    of = owners(model)
    scaled = {}
    for path, value in direction.items():
        variable, value = chosen[path], np.asarray(value, "float64")
        fixed = normalization == "how-do-vits-work" and re.search(POSITIONS, path)
        if value.ndim < 2 or fixed:
            scaled[path] = np.zeros_like(value)
            continue
        axes = tuple(range(value.ndim))
        epsilon = 0.0
        if normalization != "layer":
            axes = _filter_axes(of[id(variable)], variable)
        if normalization == "how-do-vits-work":
            axes = tuple(axis for axis in range(value.ndim) if axis not in axes)
            epsilon = 1e-7
        weights = array_of(variable).astype("float64")
        norms = np.sqrt(np.sum(np.square(value), axis=axes, keepdims=True)) + epsilon
        lengths = np.sqrt(np.sum(np.square(weights), axis=axes, keepdims=True))
        scaled[path] = value / np.where(norms > 0, norms, 1) * lengths
    return scaled


def direction_between(model: keras.Model, other: keras.Model) -> dict[str, np.ndarray]:
    """Returns the direction from a model to another one of the same architecture.

    The landscape at 0 is the loss of `model`, and at 1 that of `other`: the statistics
    of batch normalisation move with the weights.

    Args:
        model: Built `keras.Model`.
        other: Model with variables of the same shapes, in the same order.

    Returns:
        {path of the variable in `model`: array}.

    Raises:
        ValueError: The variables differ in number, name or shape.
    """
    check_built(model)
    check_built(other)
    mine, theirs = (
        [v for v in each.variables if "float" in v.dtype] for each in (model, other)
    )
    shapes = [[(v.name, tuple(v.shape)) for v in group] for group in (mine, theirs)]
    if shapes[0] != shapes[1]:
        pairs = zip(*shapes, strict=False)
        differ = next(((a, b) for a, b in pairs if a != b), "none of the common ones")
        raise ArgumentError(
            "`model` and `other` must have variables of the same shapes. Received: "
            f"{len(mine)} and {len(theirs)}; the first that differ: {differ}.",
            "other",
        )
    return {
        a.path: array_of(b).astype("float64") - array_of(a)
        for a, b in zip(mine, theirs, strict=True)
    }


def check_direction(
    direction: Mapping[str, Any], variables: Mapping[str, keras.Variable]
) -> None:
    """Raises an `ArgumentError` unless paths and shapes are those of variables."""
    for path, value in direction.items():
        expected = tuple(variables[path].shape) if path in variables else None
        if np.shape(value) != expected:
            raise ArgumentError(
                "A direction must have arrays of the shapes of the model's variables. "
                f"Received: {path!r} with shape {np.shape(value)}, for "
                f"{expected or 'no such variable'}.",
                "direction",
            )


def _filter_axes(
    layer: keras.layers.Layer, variable: keras.Variable
) -> tuple[int, ...]:
    """Returns the axes of a variable that one output unit or channel extends over."""
    every = tuple(range(len(variable.shape)))
    if not variable.name.endswith("kernel"):
        return every[1:]  # as in PyTorch: a table is one filter, or one for each row
    if isinstance(layer, layers.EinsumDense):
        kernel, output = layer.equation.split(",")[1].split("->")
        return tuple(i for i, letter in enumerate(kernel) if letter not in output)
    if isinstance(layer, DEPTHWISE) or variable.name == "depthwise_kernel":
        return every[:-2]
    if isinstance(layer, TRANSPOSED):
        return (*every[:-2], every[-1])
    return every[:-1]
