"""The embedding of positions, for images of one size or of any."""

from collections.abc import Callable, Sequence
from typing import Any

from kerasvit.layers import PositionEmbedding, SinCosPositionEmbedding
from kerasvit.typing import Tensor


def position_embedding(
    image: Tensor,
    resampling: dict[str, Any] | None,
    *,
    patch_size: int,
    stride: int = 1,
    prefix: int = 0,
    sincos: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Returns a function that adds positions to the tokens of an image.

    Args:
        image: (batch, H, W, C), of which the tokens are patches; of a hybrid, its map.
        resampling: Argument of the builder, None for images of one size.
        patch_size: P, side of a patch in pixels of `image`.
        stride: Pixels of the model's image for one of `image`.
        prefix: Number of tokens with a position before those of the patches.
        sincos: Whether the positions are sines and cosines in place of a table.
    """
    sides: Sequence[int] = image.shape[1:3]
    options: dict[str, Any] = {}
    if resampling is not None:
        sides = [-(-side // stride) for side in resampling["image_size"]]
        options = {"patch_size": patch_size}
    height, width = (side // patch_size for side in sides)
    options["name"] = "position_embedding"
    if sincos:
        layer = SinCosPositionEmbedding((height, width), **options)
    else:
        kernel = {} if resampling is None else {"kernel": resampling["kernel"]}
        layer = PositionEmbedding((height, width), prefix=prefix, **kernel, **options)
    return layer if resampling is None else lambda x: layer(x, image)
