"""Multi-head attention to neighbouring patches."""

import functools
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.types import Shape

from .attention import Attention
from .layer import check_table_size
from .position_embedding import pair


@functools.lru_cache(maxsize=8)
def neighborhood(grid: tuple[int, int], window: int, prefix: int = 0) -> np.ndarray:
    """Returns the attention mask, (prefix + H·W, prefix + H·W) booleans.

    A patch attends to patches at most window // 2 rows and columns away, including
    itself, and to the prefix tokens. These attend to all tokens.
    """
    down, across = (
        np.abs(np.subtract.outer(range(side), range(side))) <= window // 2
        for side in grid
    )
    seen = np.kron(down, across)  # (H·W, H·W)
    return np.pad(seen, (prefix, 0), constant_values=True)


@keras.saving.register_keras_serializable("kerasvit")
class NeighborhoodAttention(Attention):
    """Multi-head attention of each patch to a k × k window around it.

    The window is centred on the patch and cut off at the border of the grid. Class and
    register tokens attend to all tokens, and all tokens attend to them. The variables
    are those of `Attention`, so that weights fit both. All scores are computed and
    those outside the window masked, so that the cost is that of `Attention` too.

    Shape: (batch, prefix + H·W, D) → same.

    Args:
        num_heads: Number of heads, a divisor of D.
        grid: (H, W), patches down and across.
        window: k, odd, in patches.
        prefix: Number of tokens before the patches.
        use_bias, dropout: As for `Attention`.

    Raises:
        ValueError: `window` is not odd, or the tokens are not those of the grid.

    Reference: "convolutional" attention of Yang et al. 2019, arXiv 1904.03107, as
    Park & Kim 2022, arXiv 2202.06709, put it into a ViT. Their repository
    (xxxnell/how-do-vits-work at 9571ff1) does not contain this layer; what happens at
    the border and with the class token is decided here. Hassani et al. 2023,
    arXiv 2204.07143, move the window inwards at the border instead.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        grid: tuple[int, int],
        window: int,
        prefix: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        if window < 1 or window % 2 == 0:
            raise ArgumentError(
                "`window` must be an odd number of patches, so that it has a centre. "
                f"Received: window={window}.",
                "window",
            )
        self.grid = pair(grid)
        self.window = window
        self.prefix = prefix

    def build(self, input_shape: Shape) -> None:
        height, width = self.grid
        if input_shape[1] != self.prefix + height * width:
            raise ValueError(
                f"The tokens must be {self.prefix} and then a grid of {height} × "
                f"{width} patches: {self.prefix + height * width}. Received: "
                f"{input_shape[1]}."
            )
        super().build(input_shape)
        check_table_size(input_shape[1] ** 2, "image_size", "patch_size")
        self._mask = neighborhood(self.grid, self.window, self.prefix)[None, None]
