"""Where a model looks: attention weights, heat, rollout and distances.

maps = kerasvit.inspection.attention_maps(model, images)
maps.layers["encoder_block_0/attention"].distance  # pixels, by image and head
maps.heat  # of the last layer, on the grid of the patches
"""

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, check_built, integer, one_of
from kerasvit.backend.keras_internals import layers_in
from kerasvit.typing import Tensor

from .attention_layers import attention_layers, run_and_read
from .layer_attention import LayerAttention, joined, layer_attention
from .patch_grid import given_grid, input_shape, patch_grid
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
            as in Swin and AlterNet, or if `layers` left some out.
        image_size: (height, width) of the images, in pixels.
    """

    layers: dict[str, LayerAttention]
    rollout: np.ndarray | None
    image_size: tuple[int, int]

    @property
    def heat(self) -> np.ndarray:
        """Heat of the last layer, mean over its heads, (images, height, width)."""
        return list(self.layers.values())[-1].heat.mean(axis=1)


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
    runs with `training=False`, eagerly, with explicit instead of fused attention, and
    does not change. The weights are float32 at least, also under mixed precision.

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

    Raises:
        ValueError: An argument is out of range; the model has no attention, or takes
            images of another size; weights are infinite or NaN.
    """
    check_built(model)
    integer("batch_size", batch_size, 1)
    one_of("rollout_heads", rollout_heads, FUSIONS)
    array = _checked_images(model, images)
    reader = _Reader(
        model=model,
        chosen=_chosen_layers(model, layers),
        image_size=(array.shape[1], array.shape[2]),
        grid=given_grid(grid),
        of_token=_of_token(model, pool),
        rollout_heads=rollout_heads,
        keep_weights=keep_weights,
    )
    starts = range(0, len(array), batch_size)
    parts = [reader.batch(array[start : start + batch_size]) for start in starts]
    found = {path: joined([each[path] for each, _ in parts]) for path in parts[0][0]}
    rolled = [heat for _, heat in parts if layers is None and heat is not None]
    return AttentionMaps(
        found, np.concatenate(rolled) if rolled else None, reader.image_size
    )


@dataclass(frozen=True)
class _Reader:
    """Measures the attention layers of a model as it calls them."""

    model: keras.Model
    chosen: list[keras.layers.Layer]
    image_size: tuple[int, int]
    grid: tuple[int, int] | None
    of_token: bool | None  # None: where there is a token
    rollout_heads: str
    keep_weights: bool

    def batch(
        self, images: np.ndarray
    ) -> tuple[dict[str, LayerAttention], np.ndarray | None]:
        """Returns the layers by path, and the rollout or None, of a batch."""
        found: dict[str, LayerAttention] = {}
        sequences: list[np.ndarray] = []  # heads fused
        calls: Counter[str] = Counter()

        def read(
            layer: keras.layers.Layer, shape: tuple[int, ...], weights: Tensor
        ) -> None:
            calls[layer.path] += 1
            number = f" {calls[layer.path]}" if calls[layer.path] > 1 else ""
            array = _finite(weights, layer.path)
            each = self._measured(layer, shape, array)
            if len(shape) == 3:
                sequences.append(fused(array, self.rollout_heads))
            if not self.keep_weights:
                each = dataclasses.replace(each, weights=None)
            found[layer.path + number] = each

        run_and_read(self.model, ops.convert_to_tensor(images), self.chosen, read)
        if not found:
            raise ValueError(
                "The model must call its attention layers. Received: model="
                f"{self.model!r}, which calls none of "
                f"{[layer.path for layer in self.chosen[:3]]}."
            )
        if len(sequences) < len(found):
            return found, None
        last = list(found.values())[-1]
        return found, rolled_heat(sequences, last.grid, last.of_token)

    def _measured(
        self, layer: keras.layers.Layer, shape: tuple[int, ...], weights: np.ndarray
    ) -> LayerAttention:
        """Measures the weights of a layer with an input of a shape."""
        cells = None
        if len(shape) == 4:
            size = (shape[1], shape[2])
            cells = layer.window_cells(*size) if weights.ndim == 5 else None
        else:
            size = patch_grid(self.model, weights.shape[-1], self.image_size, self.grid)
        return layer_attention(
            weights,
            grid=size,
            cells=cells,
            of_token=self.of_token,
            image_size=self.image_size,
        )


def _checked_images(model: keras.Model, images: Any) -> np.ndarray:
    """Returns images as an array, after comparing its shape with the model's input."""
    array = ops.convert_to_numpy(images) if ops.is_tensor(images) else images
    array = np.asarray(array)
    if array.ndim != 4 or not len(array) or array.dtype.kind not in "fiu":
        raise ArgumentError(
            "`images` must be numbers (images, height, width, channels), at least one "
            f"image. Received: shape {array.shape}, dtype {array.dtype}.",
            "images",
        )
    built = input_shape(model)
    pairs = zip(built, array.shape[1:], strict=True)
    if any(expected not in (None, side) for expected, side in pairs):
        raise ArgumentError(
            f"`images` must be of {built[0]} × {built[1]} pixels with {built[2]} "
            "channels, for which the model is built. Received: {} × {} with {}. Resize "
            "the images, or the model with `kerasvit.resize`.".format(*array.shape[1:]),
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
    try:
        chosen = [each for each in layers if re.search(pattern or "", each.path or "")]
    except re.error as error:
        raise ArgumentError(
            f"`layers` must be a regular expression. Received: {pattern!r}: {error}.",
            "layers",
        ) from error
    if not chosen:
        raise ArgumentError(
            "`layers` must be a regular expression that is found in the path of an "
            f"attention layer. Received: {pattern!r}. Examples of paths: "
            f"{[each.path for each in layers[:3]]}.",
            "layers",
        )
    return chosen


def _of_token(model: keras.Model, pool: str | None) -> bool | None:
    """Returns whether the heat is of the first token; None: if there is one."""
    if pool is not None:
        return one_of("pool", pool, ("token", "average")) == "token"
    for part in layers_in(model):
        record = getattr(part, "record", None)
        kwargs = record.get("kwargs") if isinstance(record, dict) else None
        if isinstance(kwargs, dict) and "pool" in kwargs:
            return kwargs["pool"] == "token"
    return None


def _finite(weights: Tensor, path: str) -> np.ndarray:
    """Returns attention weights as an array, after checking them."""
    at_least = keras.backend.result_type(weights.dtype, "float32")
    array = ops.convert_to_numpy(ops.cast(weights, at_least))
    if not np.isfinite(array).all():
        raise ValueError(
            f"The attention weights of {path!r} must be finite. Received: Inf or NaN. "
            "Check the images and the variables of the model for Inf and NaN."
        )
    return array
