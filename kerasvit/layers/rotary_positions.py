"""Angles of rotary position embeddings."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, one_of
from kerasvit.types import Shape, Tensor

from .layer import OwnLayer
from .position_embedding import grid_of
from .resampling import indices

COORDINATES = ("centered", "index")
ORDERS = ("yx", "xy")


@keras.saving.register_keras_serializable("kerasvit")
class RotaryPositions(OwnLayer, keras.layers.Layer):
    """Angles by which `RotaryAttention` rotates the queries and keys of patches.

    A patch has two coordinates. Each is multiplied by d/4 frequencies T^(−4 i / d),
    i = 0 … d/4 − 1, for "centered" coordinates also by 2 π. The layer has no variables:
    it fits any grid.

    Shape: image (batch, H·P, W·P, channels) → (prefix + H·W, d/2), float32. Rows of the
    prefix, of class and register tokens, are 0. With `size=None` there are no
    frequencies: the coordinates, (prefix + H·W, 2).

    Args:
        size: d, size of a head, a multiple of 4; None: return coordinates.
        patch_size: P, side of a patch in pixels.
        prefix: Number of tokens before those of the patches.
        temperature: T, at least 1.
        coordinates: "centered": those of the patches' centres, from −1 to 1 in both
            directions (DINOv3). "index": 0 … H − 1 and 0 … W − 1 (EVA-02).
        reference: (H, W) that "index" coordinates are scaled to, of the pretraining;
            None: they are not scaled.
        offset: Number that is added to each index before it is scaled.
        order: "yx": the frequencies of rows stand before those of columns; or "xy".

    Raises:
        ValueError: `size` is not a multiple of 4, or another argument is not one of
            those above.

    Reference: Su et al. 2021, arXiv 2104.09864; in two dimensions Fang et al. 2023
    (EVA-02), arXiv 2303.11331, and Siméoni et al. 2025 (DINOv3), arXiv 2508.10104;
    `RotaryEmbeddingCat` and `RotaryEmbeddingDinoV3` in timm/layers/pos_embed_sincos.py.
    """

    def __init__(
        self,
        size: int | None,
        *,
        patch_size: int,
        prefix: int = 0,
        temperature: float = 100.0,
        coordinates: str = "centered",
        reference: tuple[int, int] | None = None,
        offset: float = 0.0,
        order: str = "yx",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")  # bfloat16 cannot count patches
        super().__init__(**kwargs)
        if size is not None and size % 4:
            raise ArgumentError(
                "The size of a head must be a multiple of 4 for rotary positions in "
                f"two dimensions. Received: {size}.",
                "width",
                "num_heads",
            )
        self.size = size
        self.patch_size = patch_size
        self.prefix = prefix
        self.temperature = temperature
        self.coordinates = one_of("coordinates", coordinates, COORDINATES)
        self.reference = None if reference is None else tuple(reference)
        self.offset = offset
        self.order = one_of("order", order, ORDERS)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns (prefix + H·W, d/2); (prefix + H·W, 2) without frequencies."""
        sides = [side and side // self.patch_size for side in input_shape[1:3]]
        cells = None if None in sides else self.prefix + math.prod(sides)
        return (cells, 2 if self.size is None else self.size // 2)

    def call(self, image: Tensor) -> Tensor:
        grid = grid_of(image, self.patch_size)
        known = all(isinstance(side, int) for side in grid)
        xp = np if known else ops
        sides = [self._along(axis, side, xp) for axis, side in enumerate(grid)]
        parts = [xp.reshape(x, (-1, 1)) for x in xp.meshgrid(*sides, indexing="ij")]
        parts = parts if self.order == "yx" else parts[::-1]
        if self.size is not None:
            parts = [part * self._frequencies() for part in parts]
        angles = xp.concatenate(parts, axis=1)
        angles = xp.pad(angles, ((self.prefix, 0), (0, 0)))
        return ops.cast(angles, "float32")

    def _along(self, axis: int, side: Any, xp: Any) -> Any:
        """Returns the coordinates of `side` patches along an axis."""
        index = indices(side, xp)[:, 0] + self.offset
        if self.coordinates == "centered":
            return 2.0 * ((index + 0.5) / side) - 1.0
        return index if self.reference is None else index / side * self.reference[axis]

    def _frequencies(self) -> np.ndarray:
        steps = (self.size or 0) // 4
        found = self.temperature ** -(np.arange(steps) / steps)
        found = found * 2 * math.pi if self.coordinates == "centered" else found
        return found.astype("float32")
