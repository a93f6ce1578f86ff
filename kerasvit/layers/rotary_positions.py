"""Places of patches in their image, for rotary position embeddings."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import whole_patches
from kerasvit.types import PatchSize, Shape, Tensor

from .layer import OwnLayer
from .position_embedding import grid_of


@keras.saving.register_keras_serializable("kerasvit")
class RotaryPositions(OwnLayer, keras.layers.Layer):
    """Row and column of each patch, and the grid that they are of.

    They are integers, which Keras does not cast in mixed precision: bfloat16 cannot
    count patches. `Rotation` makes angles of them.

    Shape: image (batch, H·P, W·P, channels) → (prefix + H·W, 4), int32: row, column, H
    and W. Rows of the prefix are 0.

    Args:
        patch_size: P, side of a patch in pixels, or (height, width).
        prefix: Number of tokens before those of the patches.
    """

    def __init__(
        self, patch_size: PatchSize, *, prefix: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.prefix = prefix

    def build(self, input_shape: Shape) -> None:
        """Notes the attribute `grid`, (H, W), of images that have one size."""
        if None not in input_shape[1:3]:
            self.grid = whole_patches(input_shape[1:3], self.patch_size)

    def compute_output_spec(self, image: Tensor) -> keras.KerasTensor:
        """Returns the shape and the type of the result."""
        sides = whole_patches(image.shape[1:3], self.patch_size)
        cells = None if None in sides else self.prefix + math.prod(sides)
        return keras.KerasTensor((cells, 4), "int32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns (prefix + H·W, 4)."""
        return self.compute_output_spec(keras.KerasTensor(input_shape)).shape

    def call(self, image: Tensor) -> Tensor:
        grid = grid_of(image, self.patch_size)
        xp = np if all(isinstance(side, int) for side in grid) else ops
        places = xp.meshgrid(*map(xp.arange, grid), indexing="ij")
        columns = [xp.reshape(place, (-1, 1)) for place in places]
        columns += [xp.ones_like(columns[0]) * side for side in grid]
        table = xp.pad(xp.concatenate(columns, axis=1), ((self.prefix, 0), (0, 0)))
        return ops.cast(table, "int32")
