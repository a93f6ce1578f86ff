"""PiT: a Vision Transformer that pools its tokens between stages.

Heo et al. 2021, "Rethinking Spatial Dimensions of Vision Transformers", arXiv
2103.16302. Numerics follow timm/models/pit.py.
"""

from typing import Any

import keras

from kerasvit.arguments import ArgumentError, Size, integer, one_of
from kerasvit.layers import (
    MLP,
    Attention,
    EncoderBlock,
    LayerNormalization,
    OverlappingPatchEmbedding,
    PositionMap,
    PrefixTokens,
    TokenPooling,
)
from kerasvit.preprocessing.defaults import CIFAR100, IMAGENET

from .builder import builder
from .checks import MAX_PATCHES, sizes_of
from .encoder import drop_rates
from .image_model import ImageModel, head, image_input, mean_of_heads
from .stages import check_stages, mlp_dim
from .variant import rows_of


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks stages, patches and sizes; returns all arguments as plain JSON."""
    checked = check_stages(kwargs)
    patch = checked["patch_size"]
    checked["stride"] = integer(
        "stride", kwargs["stride"], 1, patch, meaning="at most the patch size"
    )
    checked["distilled"] = one_of("distilled", kwargs["distilled"], (True, False))
    return {**checked, **sizes_of(kwargs, lambda size: _fitting(size, checked))}


def _fitting(size: Size, checked: dict[str, Any]) -> Size:
    """Checks an image size: it must have one patch, and not too many."""
    patch = checked["patch_size"]
    if min(size) < patch:
        raise ArgumentError(
            f"`image_size` must be at least the patch size, {patch}. Received: "
            f"{size[0]} × {size[1]}.",
            "image_size",
            "patch_size",
        )
    rows, columns = patches(size, patch, checked["stride"])
    if rows * columns > MAX_PATCHES:
        raise ArgumentError(
            f"`image_size` must have at most {MAX_PATCHES:,} patches, at a distance of "
            f"{checked['stride']} pixels. Received: {size[0]} × {size[1]}.",
            "image_size",
            "stride",
        )
    return size


def patches(size: Size, patch_size: int, stride: int) -> tuple[int, int]:
    """Returns (height, width) of an image in patches."""
    height, width = ((side - patch_size) // stride + 1 for side in size)
    return height, width


@builder(_checked)
def PoolingVisionTransformer(
    *,
    patch_size: int,
    stride: int,
    width: int,
    depths: list[int],
    num_heads: list[int],
    distilled: bool,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    channels: int = 3,
    num_classes: int = 1000,
    mlp_ratio: float = 4.0,
    qkv_bias: bool = True,
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "pit",
) -> ImageModel:
    """Builds a Pooling-based ViT: (batch, H, W, C) → (batch, num_classes) logits.

    A stage is a Transformer over the class token and the patches. Between two stages
    the map of the patches is halved, ⌈side / 2⌉ cells, and the channels are doubled.

    Args:
        patch_size: P, edge of a patch in pixels.
        stride: Distance between neighbouring patches in pixels, at most P.
        width: D, channels of the first stage; each further stage has twice as many.
        depths: Number of encoder blocks of each stage.
        num_heads: Attention heads of each stage, divisors of its channels.
        distilled: Whether there is a distillation token and a second head, as in
            `DistilledVisionTransformer`; the logits are the mean of both heads.
            `distillation_heads` returns both separately, for training.
        image_size: Height and width in pixels, at least P; an int for a square. Pixels
            at the bottom and at the right that fill no patch are ignored. (None, None):
            the model takes images of any such size, and resamples its position table
            in the graph.
        resampling: {"image_size": that of the position table, "kernel": the kernel to
            resample it, one of `kerasvit.layers.position_embedding.POSITION_KERNELS`},
            for an `image_size` of (None, None), where loading sets it. None: 224 pixels
            and "bicubic_antialias".
        channels: Number of channels of the images.
        num_classes: Size of the head, or of both; 0: no head, the model returns the
            class token, or the mean of both tokens.
        mlp_ratio: Hidden size of the blocks' MLPs, relative to the stage's channels.
        qkv_bias: Whether query, key and value have a bias.
        epsilon: Epsilon of each LayerNormalization.
        dropout: Dropout rate after the positions and in each block, in [0, 1).
        stochastic_depth: Probability of dropping a residual branch of the last block,
            in [0, 1). It grows linearly from 0 in the first block.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or the image has no patch.
    """
    image, x = image_input(image_size, normalization, channels)
    x = OverlappingPatchEmbedding(
        patch_size, stride=stride, width=width, name="embedding"
    )(x)  # (B, h, w, D)
    table = {"image_size": image_size, **(resampling or {})}
    grid = patches(table.pop("image_size"), patch_size, stride)
    x = PositionMap(grid, **table, name="position_embedding")(x)
    cells = keras.layers.Dropout(dropout, name="dropout")(x)
    x = keras.layers.Reshape((-1, width), name="tokens")(cells)  # (B, N, D)
    prefix = 1 + distilled
    x = PrefixTokens(prefix, stddev=0.02, name="class_token")(x)  # (B, prefix + N, D)
    rates = iter(drop_rates(stochastic_depth, sum(depths)))
    for i, depth in enumerate(depths):
        if i:
            x, cells = TokenPooling(prefix=prefix, name=f"stage_{i}_pooling")(x, cells)
        for j in range(depth):
            attention = Attention(
                num_heads[i], use_bias=qkv_bias, dropout=dropout, name="attention"
            )
            x = EncoderBlock(
                attention,
                MLP(mlp_dim(x.shape[-1], mlp_ratio), dropout=dropout, name="mlp"),
                epsilon=epsilon,
                stochastic_depth=next(rates),
                name=f"stage_{i}_block_{j}",
            )(x)
    x = LayerNormalization(epsilon=epsilon, name="encoder_norm")(x[:, :prefix])
    logits = mean_of_heads if distilled else _logits
    return ImageModel(image, logits(x, num_classes), name=name)


def _logits(x: Any, num_classes: int) -> Any:
    """Returns the logits of the first token: (B, N, D) → (B, num_classes)."""
    return head(num_classes)(x[:, 0])


# Table 1 of the paper, whose B has patches of 14 pixels.
_16: dict[str, Any] = {"patch_size": 16, "stride": 8, "depths": [2, 6, 4]}
_TI: dict[str, Any] = {**_16, "width": 64, "num_heads": [2, 4, 8]}
_XS: dict[str, Any] = {**_16, "width": 96, "num_heads": [2, 4, 8]}
_S: dict[str, Any] = {**_16, "width": 144, "num_heads": [3, 6, 12]}
_B: dict[str, Any] = {
    "patch_size": 14,
    "stride": 7,
    "width": 256,
    "depths": [3, 6, 4],
    "num_heads": [4, 8, 16],
}
_PLAIN, _DISTILLED = {"distilled": False}, {"distilled": True}

_pit = rows_of(PoolingVisionTransformer, paper=__doc__, evaluation=IMAGENET)

PiTTi16 = _pit("PiTTi16", 4_847_272, 0.70, _TI, _PLAIN)
PiTXS16 = _pit("PiTXS16", 10_618_888, 1.39, _XS, _PLAIN)
PiTS16 = _pit("PiTS16", 23_461_912, 2.87, _S, _PLAIN)
PiTB14 = _pit("PiTB14", 73_764_840, 12.40, _B, _PLAIN)
PiTTi16Distilled = _pit("PiTTi16Distilled", 5_104_336, 0.70, _TI, _DISTILLED)
PiTXS16Distilled = _pit("PiTXS16Distilled", 11_003_984, 1.41, _XS, _DISTILLED)
PiTS16Distilled = _pit("PiTS16Distilled", 24_039_056, 2.90, _S, _DISTILLED)
PiTB14Distilled = _pit("PiTB14Distilled", 74_790_096, 12.48, _B, _DISTILLED)

# PiT-Ti for the 32 × 32 pixels of CIFAR-100, which arXiv 2202.06709 compares with ViT:
# sizes of xxxnell/how-do-vits-work models/pit.py, where the class token has a position,
# too.
_CIFAR = {"patch_size": 2, "stride": 1, "image_size": 32, "num_classes": 100}
PiTTiCIFAR = _pit(
    "PiTTiCIFAR",
    4_576_676,
    0.95,
    {**_TI, **_CIFAR},
    _PLAIN,
    qkv_bias=False,
    epsilon=1e-5,
    evaluation={**CIFAR100, "crop": 1.0},
)

__all__ = [
    "PiTB14",
    "PiTB14Distilled",
    "PiTS16",
    "PiTS16Distilled",
    "PiTTi16",
    "PiTTi16Distilled",
    "PiTTiCIFAR",
    "PiTXS16",
    "PiTXS16Distilled",
    "PoolingVisionTransformer",
]
