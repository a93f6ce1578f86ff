"""Where a model looks: attention weights, heat, rollout and distances.

maps = kerasvit.inspection.attention_maps(model, images)
maps.layers["encoder_block_0/attention"].distance  # pixels, by image and head
maps.heat  # of the last layer, on the grid of the patches
"""

import dataclasses
import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, check_built, integer, one_of
from kerasvit.backend.keras_private import layers_in
from kerasvit.inspection.curvature.mean_loss import inner_model
from kerasvit.patterns import found_in

from .attention_layers import (
    Call,
    attention_layers,
    read_attention,
)
from .layer_attention import (
    LayerAttention,
    joined,
    layer_attention,
)
from .patch_grid import extent, given_grid, input_shape, patch_grid
from .rollout import FUSIONS, fused, rolled_heat


@dataclass(frozen=True)
class AttentionMaps:
    """Attention of a model to the patches of images.

    Attributes:
        layers: {path of the layer: `LayerAttention`}, in the order of the calls. A
            layer that is called again has the number of the call after its path.
        rollout: (images, height, width), attention rollout from the model's output,
            which is the class token, the pooling layer or the mean over all patches, to
            the patches. None if not all layers attend to the same sequence of tokens,
            as in Swin, PiT and AlterNet, or if `layers` left some out.
        image_size: (height, width) of the images, in pixels.
    """

    layers: dict[str, LayerAttention]
    rollout: np.ndarray | None
    image_size: tuple[int, int]

    @property
    def heat(self) -> np.ndarray:
        """Heat of the last layer, mean over its heads, (images, height, width)."""
        return list(self.layers.values())[-1].heat.mean(axis=1)

    @property
    def normalized_rollout(self) -> np.ndarray | None:
        """The rollout over its maximum in each image, as it is drawn over images.

        As in keras-team/keras-io examples/vision/probing_vits.py; None without rollout.
        """
        if self.rollout is None:
            return None
        largest = self.rollout.max(axis=(1, 2), keepdims=True)
        return self.rollout / np.where(largest > 0, largest, 1)


def attention_maps(
    model: keras.Model,
    images: Any,
    *,
    layers: str | None = None,
    pool: str | None = None,
    grid: tuple[int, int] | None = None,
    rollout_heads: str = "mean",
    batch_size: int = 8,
    keep_weights: bool = True,
) -> AttentionMaps:
    """Returns where the attention layers of a model look, by image, layer and head.

    It finds the attention layers of kerasvit and `keras.layers.MultiHeadAttention`,
    also inside of other layers, and in the model of a trainer such as `SAM`. The model
    runs with `training=False`, with explicit instead of fused attention, and does not
    change. It computes in the dtype of its variables, also under mixed precision; the
    weights are float32 at least.

    The mean distance is that of arXiv 2010.11929, figures 7 and 11: for each patch, the
    distances in pixels to the centres of all patches, weighted by its attention; then
    the mean over all patches. Attention to and from other tokens is left out, and the
    rest not normalised again. Uniform attention to a class token and N patches has
    N / (N + 1) times the mean distance of two patches.

    Args:
        model: Built `keras.Model`.
        images: (images, H, W, channels), as the model takes them.
        layers: Regular expression that is searched in the layers' paths; None: all.
        pool: What the heat is of. "token": the first token, which is the class token of
            distilled DeiT too. "average": the mean over all patches. None: as the
            record of a kerasvit model says, "average" in the layers before attention
            pooling; without a record, "token" if there are tokens before the patches.
            The heat of a layer that pools is that of its query, and of windows always
            the mean.
        grid: (height, width) of the patches, which are the last of the tokens. None:
            that of the position embedding, or square patches that fill the image.
        rollout_heads: "mean" or "max" over the heads, in the rollout.
        batch_size: Number of images per pass; it does not change the result.
        keep_weights: Whether to return the weights, 4 × heads × N² bytes for each image
            and layer: for ViT-B/16 22 MB per image of 224 pixels, 192 MB of 384.

    Returns:
        `AttentionMaps`. Attention within windows is put back on the map of the image:
        in the heat, in the distances, and from one cell by `LayerAttention.of_cell`.

    Raises:
        ValueError: An argument is out of range; the model has no attention, or takes
            images of another size; weights are infinite or NaN.
    """
    check_built(model)
    integer("batch_size", batch_size, 1)
    one_of("rollout_heads", rollout_heads, FUSIONS)
    inner = inner_model(model)
    array = _checked_images(inner, images)
    chosen = _chosen_layers(inner, layers)
    height, width = array.shape[1:3]
    measured = functools.partial(
        _measured,
        model=inner,
        image_size=(height, width),
        grid=given_grid(grid),
        of_token=_of_token(inner, pool),
    )
    parts: dict[str, list[LayerAttention]] = {}
    rolled: list[np.ndarray] = []
    for calls in read_attention(model, chosen, array, batch_size):
        found = {
            path: measured(call, path)
            for path, call in zip(_paths(calls), calls, strict=True)
        }
        heat = None if layers else _rollout(calls, found, rollout_heads)
        rolled += [] if heat is None else [heat]
        for path, each in found.items():
            each = each if keep_weights else dataclasses.replace(each, weights=None)
            parts.setdefault(path, []).append(each)
    if not parts:
        raise ValueError(
            "The model must call its attention layers. Received: "
            f"model={model!r}, which calls none of "
            f"{[layer.path for layer in chosen[:3]]}."
        )
    return AttentionMaps(
        {path: joined(batches) for path, batches in parts.items()},
        np.concatenate(rolled) if rolled else None,
        (height, width),
    )


def _paths(calls: list[Call]) -> list[str]:
    """Returns the paths of layers, with the number of a further call."""
    counts: Counter[str] = Counter()
    paths = []
    for layer, *_ in calls:
        counts[layer.path] += 1
        number = counts[layer.path]
        paths.append(layer.path if number == 1 else f"{layer.path} {number}")
    return paths


def _measured(
    call: Call,
    path: str,
    *,
    model: keras.Model,
    image_size: tuple[int, int],
    grid: tuple[int, int] | None,
    of_token: bool | None,
) -> LayerAttention:
    """Measures the weights of one layer for a batch."""
    layer, shape, weights = call
    if not np.isfinite(weights).all():
        raise ValueError(
            f"The attention weights of {path!r} must be finite. Received: Inf or NaN. "
            "Check the images and the variables of the model for Inf and NaN."
        )
    cells = None
    if len(shape) == 4:  # a map
        grid = (shape[1], shape[2])
        if hasattr(layer, "window_cells"):
            cells = layer.window_cells(*grid)
    else:
        grid = patch_grid(model, weights.shape[-1], image_size, grid)
        image_size = extent(model, grid, image_size)
    return layer_attention(
        weights, grid=grid, cells=cells, of_token=of_token, image_size=image_size
    )


def _rollout(
    calls: list[Call], found: dict[str, LayerAttention], heads: str
) -> np.ndarray | None:
    """Returns the rollout of a batch, or None if the layers are not of tokens."""
    if not calls or any(len(shape) != 3 for _, shape, _ in calls):
        return None
    matrices = [fused(weights, heads) for *_, weights in calls]
    last = list(found.values())[-1]
    return rolled_heat(matrices, last.grid, last.of_token)


def _checked_images(model: keras.Model, images: Any) -> np.ndarray:
    """Returns images as an array, after comparing its shape with the model's input."""
    if isinstance(images, (list, tuple)):  # of images, or of batches
        shapes = list(map(np.shape, images))
        if len({*shapes}) > 1:
            raise ArgumentError(
                "`images` must be one array (images, height, width, channels). "
                f"Received: arrays of shapes {shapes[:3]}. Join batches with "
                "numpy.concatenate.",
                "images",
            )
    array = ops.convert_to_numpy(images) if ops.is_tensor(images) else images
    array = np.asarray(array)
    if array.ndim != 4 or not len(array) or array.dtype.kind not in "fiu":
        raise ArgumentError(
            "`images` must be numbers (images, height, width, channels), at least one "
            f"image. Received: shape {array.shape}, dtype {array.dtype}.",
            "images",
        )
    built = input_shape(model)
    height, width, channels = array.shape[1:]
    pairs = zip(built, (height, width, channels), strict=True)
    if any(expected not in (None, side) for expected, side in pairs):
        raise ArgumentError(
            f"`images` must have the size for which the model is built, {built[0]} × "
            f"{built[1]} pixels and {built[2]} channels. Received: {height} × {width} "
            f"pixels and {channels} channels. Resize the images, or the model with "
            "`kerasvit.resize`.",
            "images",
        )
    return array


def _chosen_layers(model: keras.Model, pattern: str | None) -> list[keras.layers.Layer]:
    """Returns the attention layers in whose path a pattern is found."""
    layers = attention_layers(model)
    if not layers:
        raise ArgumentError(
            "`model` must have attention layers, of kerasvit or keras.layers."
            f"MultiHeadAttention. Received: model={model!r}, which has none. Look at "
            "the filters of its patches with `embeddings`, if it has patches, and at "
            "its curvature with `Hessian`.",
            "model",
        )
    paths = [each.path or "" for each in layers]
    search = found_in("layers", pattern or "", paths, "an attention layer")
    return [each for each in layers if search(each.path or "")]


def _of_token(model: keras.Model, pool: str | None) -> bool | None:
    """Returns whether the heat is of the first token; None: if there is one."""
    if pool is not None:
        return one_of("pool", pool, ("token", "average")) == "token"
    for part in layers_in(model):
        record = getattr(part, "record", None)
        kwargs = record.get("kwargs") if isinstance(record, dict) else None
        if isinstance(kwargs, dict) and "pool" in kwargs:
            return str(kwargs["pool"]).startswith("token")
    return None
