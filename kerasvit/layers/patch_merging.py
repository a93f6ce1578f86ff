"""Merges 2 × 2 patches: half the resolution, twice the channels."""

from typing import Any

import keras
from keras import ops

from kerasvit.types import Shape, Tensor

from .dense import dense_in
from .layer import OwnLayer
from .layer_norm import LayerNormalization


@keras.saving.register_keras_serializable("kerasvit")
class PatchMerging(OwnLayer, keras.layers.Layer):
    """Concatenates, normalises and projects each 2 × 2 cells of a map.

    The four stand in the order top left, bottom left, top right, bottom right.

    Shape: (batch, H, W, D) → (batch, H/2, W/2, 2D).

    Args:
        epsilon: Small constant added to the variance.

    Raises:
        ValueError: H or W is odd.

    Reference: Liu et al. 2021 (Swin), arXiv 2103.14030, section 3.1; `PatchMerging` in
    timm/models/swin_transformer.py.
    """

    def __init__(self, *, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        *_, height, width, channels = input_shape
        if height % 2 or width % 2:
            raise ValueError(
                "Height and width of the map must be even. Received: "
                f"{height} × {width}."
            )
        self.norm = LayerNormalization(
            epsilon=self.epsilon, name="norm", dtype=self.dtype_policy
        )
        self.norm.build((None, 4 * channels))
        self.reduction = dense_in(
            self, "reduction", 4 * channels, 2 * channels, use_bias=False
        )

    def call(self, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        x = ops.reshape(x, (-1, height // 2, 2, width // 2, 2, channels))
        x = ops.transpose(x, (0, 1, 3, 4, 2, 5))  # (B, H/2, W/2, right, down, D)
        x = ops.reshape(x, (-1, 4 * channels))
        x = self.reduction(self.norm(x))
        return ops.reshape(x, (-1, height // 2, width // 2, 2 * channels))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, height, width, channels = input_shape
        return batch, height // 2, width // 2, 2 * channels
