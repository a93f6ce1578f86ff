"""What a model has learned before its first block: patch filters and positions."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, check_built, integer
from kerasvit.backend.forward import array_of
from kerasvit.backend.keras_private import layers_in
from kerasvit.backend.threads import using
from kerasvit.inspection.curvature.mean_loss import inner_model

from .patch_grid import input_shape, patch_grid


@dataclass(frozen=True)
class Embeddings:
    """Filters of the patch embedding, and similarity of positions.

    Attributes:
        filters: (count, P, P, channels), principal components of the filters, each of
            norm 1, the largest variance first. The sign, which is arbitrary, makes the
            largest value positive. None for a model that does not embed patches of the
            image.
        variance: (count,), share of the filters' variance along each component. None
            without filters.
        similarity: (h, w, h, w), cosine similarity of the position embeddings of two
            patches, by row and column of both. None for a model without embeddings of
            absolute positions.
    """

    filters: np.ndarray | None
    variance: np.ndarray | None
    similarity: np.ndarray | None


def embeddings(model: keras.Model, count: int = 28) -> Embeddings:
    """Returns the filters and positions of figure 7 of arXiv 2010.11929.

    The principal components are those of the D filters, P × P pixels of all channels,
    around their mean. Positions may be learned or, as in `SinCosPositionEmbedding`,
    computed; class and register tokens are left out.

    Args:
        model: Built `keras.Model`: of kerasvit, or one with a convolution whose stride
            is its kernel size, and with a `keras.layers.Embedding` whose name is
            "position_embedding", as in keras-hub.
        count: Largest number of components.

    Raises:
        ValueError: The model has neither patches of the image nor embeddings of
            positions, or values that are infinite, NaN, or equal where they must not
            be.
    """
    check_built(model)
    integer("count", count, 1)
    model = inner_model(model)
    with using(model.variables):
        kernel, table = patch_kernel(model), position_vectors(model)
    if kernel is None and table is None:
        raise ArgumentError(
            "`model` must embed patches of the image or have embeddings of positions. "
            f"Received: model={model!r}, which has neither. `Hessian` measures any "
            "model.",
            "model",
        )
    filters, variance = (None, None) if kernel is None else _components(kernel, count)
    return Embeddings(filters, variance, None if table is None else _similarity(table))


def patch_kernel(model: keras.Model) -> np.ndarray | None:
    """Returns the kernel (P, P, channels, D) that embeds patches of the image."""
    channels = input_shape(model)[-1]
    for layer in layers_in(model):
        if isinstance(layer, keras.layers.Conv2D):
            patches = tuple(layer.kernel_size) == tuple(layer.strides)
        else:
            patches = hasattr(layer, "patch_size") and hasattr(layer, "kernel")
        # Hybrids embed patches of the map of a ResNet.
        if patches and channels in (None, layer.kernel.shape[2]):
            return _array(layer.kernel, layer)
    return None


def position_vectors(model: keras.Model) -> np.ndarray | None:
    """Returns the embeddings (h, w, D) of the patches' positions."""
    for layer in layers_in(model):
        if hasattr(layer, "grid") and hasattr(layer, "table"):
            table, grid = _array(layer.table, layer)[0], layer.grid
        elif isinstance(layer, keras.layers.Embedding) and (
            layer.name == "position_embedding"
        ):
            table = _array(layer.embeddings, layer)
            grid = patch_grid(model, len(table), input_shape(model)[:2])
        else:
            continue
        return table[-grid[0] * grid[1] :].reshape(*grid, -1)
    return None


def _array(values: Any, layer: keras.layers.Layer) -> np.ndarray:
    """Returns values of a layer in float64, after checking that they are finite."""
    if isinstance(values, keras.Variable):
        values = array_of(values)
    array = ops.convert_to_numpy(ops.cast(values, "float32")).astype("float64")
    if not np.isfinite(array).all():
        raise ValueError(
            f"The variables of {layer.path!r} must be finite. Received: Inf or NaN."
        )
    return array


def _components(kernel: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the principal components of filters and their shares of the variance."""
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (D, P·P·channels)
    filters = filters - filters.mean(axis=0)
    if not filters.any():
        raise ValueError(
            "The filters of the patch embedding must differ. Received: "
            f"{len(filters)} equal filters. Load weights, or train the model."
        )
    _, values, components = np.linalg.svd(filters, full_matrices=False)
    shares = values**2 / np.sum(values**2)
    largest = np.abs(components).argmax(axis=1)[:, None]
    components *= np.sign(np.take_along_axis(components, largest, 1))
    count = min(count, len(filters) - 1)  # D filters lie in D - 1 dimensions
    components = components[:count].reshape(-1, *kernel.shape[:-1])
    return components.astype("float32"), shares[:count].astype("float32")


def _similarity(table: np.ndarray) -> np.ndarray:
    """Returns cosine similarities (h, w, h, w) of embeddings (h, w, D)."""
    norms = np.linalg.norm(table, axis=-1, keepdims=True)
    if not norms.all():
        raise ValueError(
            "Embeddings of positions must not be zero, which has no direction. "
            f"Received: zeros at {np.argwhere(norms == 0)[0][:2].tolist()}. Load "
            "weights, or train the model."
        )
    table = table / norms
    return np.einsum("hwd,ijd->hwij", table, table, optimize=True).astype("float32")
