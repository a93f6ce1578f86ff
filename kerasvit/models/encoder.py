"""The encoder of Vision Transformers, and rates of stochastic depth."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from kerasvit.layers import (
    MLP,
    Attention,
    EncoderBlock,
    LayerNormalization,
    LayerScaleBlock,
    PositionEmbedding,
    SinCosPositionEmbedding,
    SwiGLU,
)
from kerasvit.types import Tensor


def drop_rates(last: float, depth: int) -> list[float]:
    """Rates of stochastic depth: linear, from 0 in the first block to `last`."""
    return [last * i / max(depth - 1, 1) for i in range(depth)]


def encoder(
    x: Tensor,
    *,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    activation: str,
    epsilon: float,
    dropout: float,
    stochastic_depth: float,
    qkv_bias: bool = True,
    layer_scale: float | None = None,
    mlp: str = "plain",
    pre_norm: bool = False,
) -> Tensor:
    """Dropout, `pre_norm` and the encoder blocks: (B, N, D) → (B, N, D).

    The arguments are those of `VisionTransformer`.
    """
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    if pre_norm:
        x = LayerNormalization(epsilon=epsilon, name="pre_norm")(x)
    branch = SwiGLU if mlp == "swiglu" else partial(MLP, activation=activation)
    for i, rate in enumerate(drop_rates(stochastic_depth, depth)):
        parts: dict[str, Any] = {
            "attention": Attention(
                num_heads, use_bias=qkv_bias, dropout=dropout, name="attention"
            ),
            "mlp": branch(mlp_dim, dropout=dropout, name="mlp"),
            "epsilon": epsilon,
            "stochastic_depth": rate,
            "name": f"encoder_block_{i}",
        }
        if layer_scale is None:
            x = EncoderBlock(**parts)(x)
        else:
            x = LayerScaleBlock(init_value=layer_scale, **parts)(x)
    return x


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
