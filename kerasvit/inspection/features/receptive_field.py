"""Effective receptive fields: which pixels a feature depends on, and how strongly."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import integer, number
from kerasvit.backend import input_gradient
from kerasvit.backend.keras_private import in_variable_dtype
from kerasvit.types import Tensor

from .activations import Activations, activations_of
from .images import check_images, image_batches


@dataclass(frozen=True)
class ReceptiveFields:
    """Dependence of the central cell of feature maps on the pixels.

    Args:
        names: Paths of the layers, in the order of depth.
        fields: Array (layers, H, W), in [0, 1], with maximum 1 for each layer.
    """

    names: list[str]
    fields: np.ndarray

    def sides(self, threshold: float = 1 - 0.9545) -> np.ndarray:
        """Returns the side in pixels of a square of the same area, array (layers,).

        The area is that of the pixels above the threshold in [0, 1), in Luo et al. the
        part of a normal distribution beyond two standard deviations.
        """
        number("threshold", threshold, 0, 1)
        return np.sqrt((self.fields > threshold).sum((1, 2)))


def effective_receptive_field(
    model: keras.Model | Activations, x: Any, *, seed: int = 0, batch_size: int = 8
) -> ReceptiveFields:
    """Returns how the centre of feature maps depends on each pixel, by depth.

    The features of the cell (h // 2, w // 2), c = 1 … C, have the derivatives J by the
    pixels. The field of a layer is √(mean over images of Σ_c Σ_colours J²), divided by
    its maximum. Σ_c J² is estimated by the squared gradient of Σ_c s_c f_c with random
    signs s, other ones for each image; its expectation is exact. (Luo et al. take one
    channel. The sum of all, as others take, is constant after a layer normalisation.)
    Prefix tokens have no place and are left out.

    The model runs with `training=False` and computes in the dtype of its variables. One
    gradient per layer and batch is computed.

    Args:
        model: Built functional `keras.Model`, or `Activations` of chosen layers.
        x: Images (N, H, W, C) as the model takes them, or an iterable of batches.
        seed: Seed of the signs, which depend on it and the number of the image.
        batch_size: Number of images per batch; it does not change the result.

    Raises:
        ValueError: As for `Activations.maps`; a gradient is 0 for all pixels, or
            not finite.

    Reference: Luo et al. 2016, arXiv 1701.04128, sections 3 and 4.
    """
    activations = activations_of(model)
    integer("seed", seed, 0)
    layouts = activations.layouts()
    parts = [
        keras.Model(activations.model.inputs[0], tensor)
        for tensor in activations.model.outputs
    ]
    gradients = [
        input_gradient(part, _projection(part, *layout))
        for part, layout in zip(parts, layouts, strict=True)
    ]
    total, count = np.zeros(()), 0
    with in_variable_dtype(activations.source):
        for images in image_batches(x, batch_size):
            check_images(activations.source, images)
            tensor = ops.convert_to_tensor(images.astype(keras.config.floatx()))
            seeds = [(seed, count + i) for i in range(len(images))]
            found = [
                gradient(tensor, _signs(part.outputs[0].shape[-1], seeds))
                for part, gradient in zip(parts, gradients, strict=True)
            ]
            squares = [ops.convert_to_numpy(g).astype("float64") ** 2 for g in found]
            total = total + np.stack(squares).sum((1, 4))
            count += len(images)
    return _normalised(activations.names, np.sqrt(total / count))


def _projection(
    model: keras.Model, grid: tuple[int, int], prefix: int | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns Σ_c s_c f_c of the central cell as a function of images and signs."""

    def projection(images: Tensor, signs: Tensor) -> Tensor:
        features = model(images, training=False)
        if prefix is None:
            centre = features[:, features.shape[1] // 2, features.shape[2] // 2]
        else:
            centre = features[:, prefix + grid[0] // 2 * grid[1] + grid[1] // 2]
        return ops.sum(centre * ops.cast(signs, centre.dtype))

    return projection


def _signs(channels: int, seeds: list[tuple[int, int]]) -> Tensor:
    """Returns one row of random signs for each seed, (batch, channels)."""
    rows = [np.random.default_rng(seed).choice([-1, 1], channels) for seed in seeds]
    return ops.convert_to_tensor(np.stack(rows), keras.config.floatx())


def _normalised(names: list[str], fields: np.ndarray) -> ReceptiveFields:
    largest = fields.max((1, 2))
    for name, value in zip(names, largest, strict=True):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(
                f"The gradient of the features of {name!r} by the pixels must be "
                f"finite, and not 0 for all of them. Received: at most {value}. Check "
                "the images and the weights."
            )
    return ReceptiveFields(names, fields / largest[:, None, None])
