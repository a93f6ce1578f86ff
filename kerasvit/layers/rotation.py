"""Rotation of queries and keys by the places of their patches."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, one_of
from kerasvit.types import Shape, Tensor

from .layer import OwnLayer

COORDINATES = ("centered", "index")
ORDERS = ("yx", "xy")
PAIRS = ("halves", "neighbours")


@keras.saving.register_keras_serializable("kerasvit")
class Rotation(OwnLayer, keras.layers.Layer):
    """Rotates pairs of entries of each head by angles that depend on the patch.

    Each of a patch's two coordinates is multiplied by d/4 frequencies T^(−4 i / d), i =
    0 … d/4 − 1, for "centered" coordinates also by 2 π. Pair (a, b) number i becomes
    (a cos θ − b sin θ, b cos θ + a sin θ) with the i-th of the d/2 angles θ. The
    product of a query and a key then depends on the difference of their coordinates.
    Angles and rotation are computed in float32 at least.

    Shape: (batch, N, heads, d) and the result of `RotaryPositions`, (N, 4) → (batch, N,
    heads, d).

    Args:
        temperature: T, at least 1.
        coordinates: "centered": those of the patches' centres, from −1 to 1 in both
            directions (DINOv3). "index": 0 … H − 1 and 0 … W − 1 (EVA-02).
        reference: (H, W) that "index" coordinates are scaled to, of the pretraining;
            None: they are not scaled.
        offset: Number that is added to each index before it is scaled.
        order: "yx": the angles of rows stand before those of columns; or "xy".
        pairs: Which entries of a head are rotated together. "halves": i and i + d/2
            (DINOv3). "neighbours": 2 i and 2 i + 1 (EVA-02).
        mixed: Whether each head has learned frequencies, (2, heads, d/2), of both
            coordinates (arXiv 2403.13298).

    Raises:
        ValueError: d is not a multiple of 4, or an argument is none of those above.

    Reference: Su et al. 2021, arXiv 2104.09864; in two dimensions Fang et al. 2023
    (EVA-02), arXiv 2303.11331, and Siméoni et al. 2025 (DINOv3), arXiv 2508.10104;
    `RotaryEmbeddingCat`, `RotaryEmbeddingDinoV3` and `RotaryEmbeddingMixed` in
    timm/layers/pos_embed_sincos.py.
    """

    def __init__(
        self,
        *,
        temperature: float = 100.0,
        coordinates: str = "centered",
        reference: tuple[int, int] | None = None,
        offset: float = 0.0,
        order: str = "yx",
        pairs: str = "halves",
        mixed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.coordinates = one_of("coordinates", coordinates, COORDINATES)
        self.reference = reference
        self.offset = offset
        self.order = one_of("order", order, ORDERS)
        self.pairs = one_of("pairs", pairs, PAIRS)
        self.mixed = mixed

    def build(self, input_shape: Shape) -> None:
        *_, heads, size = input_shape
        if size % 4:
            raise ArgumentError(
                "The size of a head, `width` / `num_heads`, must be a multiple of 4 "
                f"for rotary positions in two dimensions. Received: {size}.",
                "width",
                "num_heads",
            )
        if self.mixed:
            self.frequencies = self.add_weight(
                name="frequencies",
                shape=(2, heads, size // 2),
                initializer=keras.initializers.RandomUniform(-1.0, 1.0),
                autocast=False,
            )

    @property
    def _exact(self) -> Any:
        """Type of the angles: float32, or float64 in a model of that type."""
        return keras.backend.result_type(self.variable_dtype, "float32")

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.rotate(x, self.turns(positions, x.shape[-1]))

    def turns(self, positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Returns sine and cosine of the angles, (N, heads or 1, d/2)."""
        parts = [self._along(positions, axis)[:, None, None] for axis in (0, 1)]
        parts = parts if self.order == "yx" else parts[::-1]
        if self.mixed:
            frequencies = ops.convert_to_tensor(self.frequencies)
            angles = parts[0] * frequencies[0] + parts[1] * frequencies[1]
        else:
            steps = size // 4
            found = self.temperature ** -(np.arange(steps) / steps)
            found = found * 2 * np.pi if self.coordinates == "centered" else found
            found = ops.convert_to_tensor(found, self._exact)
            angles = ops.concatenate([part * found for part in parts], axis=-1)
        return ops.sin(angles), ops.cos(angles)

    def rotate(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Rotates the heads of tokens, (batch, N, heads, d), by `turns`."""
        sine, cosine = turns
        exact = ops.cast(x, self._exact)
        halves = self.pairs == "halves"
        if halves:
            a, b = ops.split(exact, 2, axis=-1)
        else:
            a, b = exact[..., ::2], exact[..., 1::2]
        parts = [a * cosine - b * sine, b * cosine + a * sine]
        if halves:
            rotated = ops.concatenate(parts, axis=-1)
        else:
            rotated = ops.reshape(ops.stack(parts, axis=-1), ops.shape(x))
        return ops.cast(rotated, x.dtype)

    def _along(self, positions: Tensor, axis: int) -> Tensor:
        """Returns the coordinates of the tokens along an axis, (N,); 0 of a prefix."""
        positions = ops.cast(positions, self._exact)
        index, side = positions[:, axis], positions[:, 2 + axis]
        index, known = index + self.offset, ops.maximum(side, 1.0)
        if self.coordinates == "centered":
            index = (index + 0.5) / known * 2.0 - 1.0
        elif self.reference is not None:
            index = index / known * self.reference[axis]
        return ops.where(side > 0, index, 0.0)
