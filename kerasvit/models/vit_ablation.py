"""Vision Transformers for ablations, each with one change.

Park & Kim 2022, "How Do Vision Transformers Work?", arXiv 2202.06709: attention to all
patches or to a window, a class token or the average, and, from Xiong et al. 2020,
arXiv 2002.04745, pre- or post-normalisation. Numerics follow models/vit.py and
models/attentions.py of xxxnell/how-do-vits-work at 9571ff1: no bias in query, key and
value, an epsilon of 1e-5, exact GELU.
"""

import functools
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, one_of, whole_patches
from kerasvit.layers import (
    MLP,
    Attention,
    EncoderBlock,
    LayerNormalization,
    NeighborhoodAttention,
    PatchEmbedding,
    PostNormBlock,
    PrefixTokens,
)
from kerasvit.preprocessing import defaults
from kerasvit.types import PatchSize

from .builder import builder
from .checks import integer, known_size, multiple_of, sizes_of
from .encoder import drop_rates, position_embedding
from .image_model import ImageModel, head, image_input
from .variant import rows_of

EPSILON = 1e-5  # PyTorch's
BLOCKS = {"pre": EncoderBlock, "post": PostNormBlock}


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks what only these ViTs have; returns all arguments as plain JSON."""
    checked = {**kwargs, "num_heads": integer("num_heads", kwargs["num_heads"], 1)}
    if kwargs["window"] is not None:
        known_size(kwargs["image_size"], "`window` is laid on its patches")
        checked["window"] = integer("window", kwargs["window"], 1)
        if checked["window"] % 2 == 0:
            raise ArgumentError(
                "`window` must be an odd number of patches, or None for all of them. "
                f"Received: {checked['window']}.",
                "window",
            )
    one_of("pool", kwargs["pool"], ("token", "average"))
    one_of("norm", kwargs["norm"], tuple(BLOCKS))
    fitting = functools.partial(multiple_of, patch=kwargs["patch_size"])
    return {**checked, **sizes_of(kwargs, fitting)}


@builder(_checked)
def VisionTransformerAblation(
    *,
    patch_size: PatchSize,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    window: int | None,
    pool: str,
    norm: str,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    channels: int = 3,
    num_classes: int = 1000,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "vit_ablation",
) -> ImageModel:
    """Builds a ViT for ablations: (batch, H, W, C) → (batch, num_classes) logits.

    With `window=None` and `norm="pre"` it is `VisionTransformer(qkv_bias=False,
    epsilon=1e-5)`, with the same variables.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        window: k, odd: each patch attends to a k × k window around it and the class
            token, which attends to all tokens (`NeighborhoodAttention`). None: each
            token attends to all tokens.
        pool: "token": the class token. "average": no class token, the mean of the
            patches.
        norm: "pre": each block normalises the inputs of its branches, and one more
            normalisation follows the last block. "post": each block normalises its
            sums, and no normalisation follows.
        image_size: Height and width in pixels, multiples of P; an int for a square.
            (None, None), without `window`: the model takes images of any such size, and
            resamples its position table in the graph.
        resampling: {"image_size": that of the position table, "kernel": the kernel to
            resample it, one of `kerasvit.layers.position_embedding.POSITION_KERNELS`},
            for an `image_size` of (None, None), where loading sets it. None: 224 pixels
            and "bicubic_antialias".
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        stochastic_depth: Probability of dropping a residual branch of the last block,
            in [0, 1). It grows linearly from 0 in the first block.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or `image_size` is not a multiple of P.
    """
    image, x = image_input(image_size, normalization, channels)
    x = PatchEmbedding(patch_size, width=width, name="embedding")(x)  # (B, N, D)
    prefix = int(pool == "token")
    if prefix:
        x = PrefixTokens(name="class_token")(x)  # (B, 1 + N, D)
    x = position_embedding(image, resampling, patch_size=patch_size, prefix=prefix)(x)
    attention = functools.partial(Attention, num_heads)
    if window is not None:
        grid = whole_patches(image_size, patch_size)
        attention = functools.partial(
            NeighborhoodAttention, num_heads, grid=grid, window=window, prefix=prefix
        )
    for i, rate in enumerate(drop_rates(stochastic_depth, depth)):
        x = BLOCKS[norm](
            attention(use_bias=False, name="attention"),
            MLP(mlp_dim, name="mlp"),
            epsilon=EPSILON,
            stochastic_depth=rate,
            name=f"encoder_block_{i}",
        )(x)
    if norm == "pre":
        x = LayerNormalization(epsilon=EPSILON, name="encoder_norm")(x)
    x = x[:, 0] if prefix else keras.ops.mean(x, axis=1)  # (B, D)
    return ImageModel(image, head(num_classes)(x), name=name)


# The repository's `vit.tiny` with 8 × 8 patches of CIFAR-100, which the study of
# windows needs for its largest, 8 × 8, to be all. Its other experiments have a
# `patch_size` of 2. The evaluation is of configs/cifar100_vit.yaml.
CIFAR100 = {
    "patch_size": 4,
    "width": 192,
    "depth": 12,
    "num_heads": 3,
    "mlp_dim": 768,
    "image_size": 32,
    "num_classes": 100,
    "evaluation": {
        "crop": 1.0,
        **defaults.CIFAR100,
    },
}

_ablation = rows_of(VisionTransformerAblation, paper=__doc__, **CIFAR100)

ViTTi4CIFAR = _ablation(
    "ViTTi4CIFAR", 5_373_220, 0.365, window=None, pool="token", norm="pre"
)
ViTTi4CIFARLocal3 = _ablation(
    "ViTTi4CIFARLocal3", 5_373_220, 0.365, window=3, pool="token", norm="pre"
)
ViTTi4CIFARLocal5 = _ablation(
    "ViTTi4CIFARLocal5", 5_373_220, 0.365, window=5, pool="token", norm="pre"
)
ViTTi4CIFARAverage = _ablation(
    "ViTTi4CIFARAverage", 5_372_836, 0.359, window=None, pool="average", norm="pre"
)
ViTTi4CIFARPostNorm = _ablation(
    "ViTTi4CIFARPostNorm", 5_372_836, 0.365, window=None, pool="token", norm="post"
)

__all__ = [
    "VisionTransformerAblation",
    "ViTTi4CIFAR",
    "ViTTi4CIFARAverage",
    "ViTTi4CIFARLocal3",
    "ViTTi4CIFARLocal5",
    "ViTTi4CIFARPostNorm",
]
