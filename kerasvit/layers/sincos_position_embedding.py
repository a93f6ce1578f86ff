"""A fixed position table of sines and cosines."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.types import PatchSize, Shape, Tensor

from .layer import OwnLayer, check_table_size
from .position_embedding import grid_of, pair
from .resampling import indices


def sincos_table(
    grid: tuple[Any, Any], width: int, xp: Any = np, *, endpoint: bool = True
) -> Any:
    """Returns big_vision's fixed table, (H·W, width), float64.

    Frequencies decrease geometrically from 1 to 1/10000 over width/4 steps; each row is
    sin x, cos x, sin y, cos y, as in `posemb_sincos_2d` of big_vision/models/vit.py.
    With `xp=keras.ops` the grid may be tensors, and the table is a float32 tensor.
    Without `endpoint` the frequency 1/10000 would be one step further, as in
    `get_2d_sincos_pos_embed` of facebookresearch/mae util/pos_embed.py.
    """
    sides = (indices(side, xp)[:, 0] for side in grid)
    y, x = (xp.reshape(each, (-1, 1)) for each in xp.meshgrid(*sides, indexing="ij"))
    steps = width // 4
    last = max(steps - 1, 1) if endpoint else steps
    frequency = 10_000.0 ** -(np.arange(steps) / last)
    frequency = frequency.astype("float64" if xp is np else "float32")
    x, y = (each * frequency for each in (x, y))
    return xp.concatenate([xp.sin(x), xp.cos(x), xp.sin(y), xp.cos(y)], axis=1)


_known_table = functools.lru_cache(maxsize=8)(sincos_table)


@keras.saving.register_keras_serializable("kerasvit")
class SinCosPositionEmbedding(OwnLayer, keras.layers.Layer):
    """Adds sines and cosines of row and column to each token.

    The layer has no variables: it fits any grid, without loading or resampling.

    Shape: (batch, H·W, D) → same. With `patch_size`: (batch, h·w, D) and an image
    (batch, h·P, w·P, channels), whose patches the tokens are → the shape of the tokens.

    Args:
        grid: (H, W), patches down and across.
        patch_size: P, side of a patch of the image, or both, for images of any size.
            None: all images have H × W patches.

    Raises:
        ValueError: D is not a multiple of 4.

    Reference: Beyer et al. 2022, arXiv 2205.01580; big_vision/models/vit.py.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        patch_size: PatchSize | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid = pair(grid)
        self.patch_size = patch_size

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width % 4:
            raise ArgumentError(
                "A sin-cos position table needs a `width` that is a multiple of 4. "
                f"Received: width={width}.",
                "width",
            )
        check_table_size(8 * self.grid[0] * self.grid[1] * width, "image_size", "width")
        self.table = sincos_table(self.grid, width)[None]  # (1, H·W, D)

    def call(self, x: Tensor, image: Tensor | None = None) -> Tensor:
        table = self.table
        if self.patch_size is not None:
            grid = grid_of(image, self.patch_size)
            known = all(isinstance(side, int) for side in grid)
            width = x.shape[-1]
            table = (
                _known_table(grid, width) if known else sincos_table(grid, width, ops)
            )
        return x + ops.cast(table, x.dtype)
