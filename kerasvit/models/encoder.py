"""The encoder of Vision Transformers, and rates of stochastic depth."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from kerasvit.arguments import whole_patches
from kerasvit.layers import (
    MLP,
    Attention,
    AttentionPooling,
    EncoderBlock,
    LayerNormalization,
    LayerScaleBlock,
    PositionEmbedding,
    PrefixTokens,
    SinCosPositionEmbedding,
    SwiGLU,
)
from kerasvit.types import PatchSize, Tensor

# Table 1 of the paper; Ti and S from Steiner et al. 2022, arXiv 2106.10270; So400M from
# Alabdulmohsin et al. 2023, arXiv 2305.13035; g of DINOv2, arXiv 2304.07193; those from
# Wee to So150MDeep are timm's (wee, little, medium, mediumd, betwixt, so150m, so150m2).
SIZES = {
    "Ti": {"width": 192, "depth": 12, "num_heads": 3, "mlp_dim": 768},
    "S": {"width": 384, "depth": 12, "num_heads": 6, "mlp_dim": 1536},
    "B": {"width": 768, "depth": 12, "num_heads": 12, "mlp_dim": 3072},
    "L": {"width": 1024, "depth": 24, "num_heads": 16, "mlp_dim": 4096},
    "Wee": {"width": 256, "depth": 14, "num_heads": 4, "mlp_dim": 1280},
    "Little": {"width": 320, "depth": 14, "num_heads": 5, "mlp_dim": 1792},
    "M": {"width": 512, "depth": 12, "num_heads": 8, "mlp_dim": 2048},
    "MDeep": {"width": 512, "depth": 20, "num_heads": 8, "mlp_dim": 2048},
    "Betwixt": {"width": 640, "depth": 12, "num_heads": 10, "mlp_dim": 2560},
    "So150M": {"width": 896, "depth": 18, "num_heads": 14, "mlp_dim": 2304},
    "So150MDeep": {"width": 832, "depth": 21, "num_heads": 13, "mlp_dim": 2176},
    "So400M": {"width": 1152, "depth": 27, "num_heads": 16, "mlp_dim": 4304},
    "H": {"width": 1280, "depth": 32, "num_heads": 16, "mlp_dim": 5120},
    "g": {"width": 1536, "depth": 40, "num_heads": 24, "mlp_dim": 4096},
}


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
    patch_size: PatchSize,
    stride: int = 1,
    prefix: int = 0,
    sincos: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Returns a function that adds positions to the tokens of an image.

    Args:
        image: (batch, H, W, C), of which the tokens are patches; of a hybrid, its map.
        resampling: Argument of the builder, None for images of one size.
        patch_size: P, side of a patch in pixels of `image`, or both.
        stride: Pixels of the model's image for one of `image`.
        prefix: Number of tokens with a position before those of the patches.
        sincos: Whether the positions are sines and cosines in place of a table.
    """
    sides: Sequence[int] = image.shape[1:3]
    options: dict[str, Any] = {}
    if resampling is not None:
        sides = [-(-side // stride) for side in resampling["image_size"]]
        options = {"patch_size": patch_size}
    height, width = whole_patches(sides, patch_size)
    options["name"] = "position_embedding"
    if sincos:
        layer = SinCosPositionEmbedding((height, width), **options)
    else:
        kernel = {} if resampling is None else {"kernel": resampling["kernel"]}
        layer = PositionEmbedding((height, width), prefix=prefix, **kernel, **options)
    return layer if resampling is None else lambda x: layer(x, image)


def prefixed(
    x: Tensor,
    class_token: bool,
    register_tokens: int,
    add_positions: Callable[[Tensor], Tensor] | None,
    *,
    everywhere: bool,
) -> Tensor:
    """Puts the class and register tokens before the patches: (B, N, D) → (B, k + N, D).

    Args:
        x: Tokens of patches.
        class_token, register_tokens: As for `VisionTransformer`.
        add_positions: Result of `position_embedding`, or None.
        everywhere: Whether all tokens have positions, or those of patches only.
    """
    if add_positions and not everywhere:
        x = add_positions(x)
    if register_tokens:
        x = PrefixTokens(register_tokens, stddev=1e-6, name="register_tokens")(x)
    if class_token:
        x = PrefixTokens(name="class_token")(x)
    return add_positions(x) if add_positions and everywhere else x


def pooled(
    x: Tensor,
    pool: str,
    prefix: int,
    *,
    epsilon: float,
    final_norm: bool = True,
    **attention: Any,
) -> Tensor:
    """Normalises and pools tokens: (B, prefix + N, D) → (B, D), or (B, 2 · D) of both.

    Args:
        x: Tokens.
        pool: As for `VisionTransformer`.
        prefix: Number of tokens that the mean and the attention leave out.
        epsilon: Epsilon of the normalisations.
        final_norm: Whether there is a normalisation.
        **attention: Further arguments of `AttentionPooling`.
    """
    norm = LayerNormalization(epsilon=epsilon, name="encoder_norm")
    if final_norm and pool != "average_then_norm":
        x = norm(x)
    if pool == "token":
        return x[:, 0]
    patches = x[:, prefix:] if prefix else x
    if pool == "attention":
        return AttentionPooling(epsilon=epsilon, **attention, name="pool")(patches)
    average = keras.ops.mean(patches, axis=1)
    if pool == "token_and_average":
        return keras.ops.concatenate([x[:, 0], average], axis=-1)
    return norm(average) if pool == "average_then_norm" else average
