"""Hybrids: a Vision Transformer on the feature map of a ResNet.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", arXiv 2010.11929, section 3.1;
the smaller ones from Steiner et al. 2022, arXiv 2106.10270. Numerics follow
google-research/vision_transformer vit_jax/{models_vit,models_resnet}.py and
timm/models/vision_transformer_hybrid.py, by the arguments in which they differ.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, Size, integer, number, one_of
from kerasvit.layers import (
    Dense,
    GroupNorm,
    LayerNormalization,
    PatchEmbedding,
    PostactUnit,
    PrefixTokens,
    StandardizedConv,
)

from .builder import builder
from .checks import integers, sizes_of, stage_widths
from .encoder import SIZES, encoder, position_embedding
from .image_model import ImageModel, head, image_input
from .variant import rows_of
from .vit import check_arguments

GROUPS = 32  # of each group normalisation of the ResNet

# Arguments of `VisionTransformer` that are fixed here.
FIXED = {
    "class_token": None,
    "register_tokens": 0,
    "positions": "tokens",
    "layer_scale": None,
    "partial_patches": False,
    "final_norm": True,
}


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks the Transformer, then the ResNet; returns all arguments as plain JSON."""
    one_of("pool", kwargs["pool"], ("token", "average"))
    integer("patch_size", kwargs["patch_size"], 1)
    # The Transformer's image is the ResNet's map, of which one patch is the least.
    shared = {**kwargs, **FIXED, "image_size": Size.of(kwargs["patch_size"])}
    shared = check_arguments(shared)
    checked = {key: shared[key] for key in kwargs}
    depths = kwargs["resnet_depths"]
    stem = isinstance(depths, (list, tuple)) and not depths
    checked["resnet_depths"] = (
        [] if stem else integers("resnet_depths", depths, None, 1)
    )
    factor = number("width_factor", kwargs["width_factor"], 0.5)
    if 64 * factor % GROUPS:
        raise ArgumentError(
            "`width_factor` must be a multiple of 0.5: the channels are normalised in "
            f"{GROUPS} groups. Received: {factor!r}.",
            "width_factor",
        )
    checked["width_factor"] = factor
    widths, stages = kwargs["stage_widths"], len(checked["resnet_depths"])
    checked["stage_widths"] = stage_widths(widths, stages, GROUPS)
    return {**checked, **sizes_of(kwargs, lambda size: _fitting(size, checked))}


def _stride(resnet_depths: list[int]) -> int:
    """Returns the stride of the ResNet's map in pixels."""
    return 4 * 2 ** max(len(resnet_depths) - 1, 0)


def _fitting(size: Size, checked: dict[str, Any]) -> Size:
    """Checks an image size: its padded feature map must be whole patches."""
    stride, patch = _stride(checked["resnet_depths"]), checked["patch_size"]
    if any(-(-side // stride) % patch for side in size):
        whole = stride * patch
        near = [max(whole, round(side / whole) * whole) for side in size]
        raise ArgumentError(
            f"`image_size` must be a multiple of {whole}, the ResNet's stride "
            f"{stride} times the patch size {patch}, or up to {stride - 1} pixels "
            f"less. Received: {size[0]} × {size[1]}. The nearest that fits is "
            f"{near[0]} × {near[1]}.",
            "image_size",
            "patch_size",
        )
    return size


@builder(_checked)
def HybridVisionTransformer(
    *,
    resnet_depths: list[int],
    patch_size: int,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    width_factor: float = 1,
    stage_widths: list[int] | None = None,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    channels: int = 3,
    num_classes: int = 1000,
    pool: str = "token",
    representation_size: int | None = None,
    activation: str = "gelu",
    epsilon: float = 1e-6,
    group_epsilon: float = 1e-5,
    kernel_epsilon: float = 1e-8,
    add_to_deviation: bool = False,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "hybrid",
) -> ImageModel:
    """Builds a ViT on a ResNet: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        resnet_depths: Units of each stage of the ResNet; an empty list: only the stem.
            The stride is 4, doubled by each stage after the first.
        patch_size: P, edge of a patch in cells of the ResNet's map.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        width_factor: The ResNet's channels relative to a ResNet-50, a multiple of ½.
        stage_widths: Output channels of each stage, multiples of 128. None: 256 times
            `width_factor`, doubled from stage to stage.
        image_size: Height and width in pixels; an int for a square. The sides of the
            map, ⌈side / stride⌉ cells, must be multiples of P. (None, None): the model
            takes images of any such size, and resamples its position table in the
            graph.
        resampling: {"image_size": that of the position table, "kernel": the kernel to
            resample it, one of `kerasvit.layers.position_embedding.POSITION_KERNELS`},
            for an `image_size` of (None, None), where loading sets it. None: 224 pixels
            and "bicubic_antialias".
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        pool: How tokens become one vector, after the last normalisation. "token": the
            class token. "average": the mean of the patches; there is no class token.
        representation_size: Size of a dense layer with tanh before the head, the
            paper's pre-logits; None: no such layer.
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu", CLIP's.
        epsilon: Epsilon of each LayerNormalization.
        group_epsilon: Epsilon of the ResNet's group normalisations; 1e-5 in timm, 1e-6
            in vit_jax.
        kernel_epsilon: Epsilon of the standardised convolutions; 1e-8 in timm, 1e-5 in
            vit_jax.
        add_to_deviation: True: `kernel_epsilon` is added to a kernel's standard
            deviation, as in vit_jax; False: to its variance, as in timm.
        dropout: Dropout rate after the position embedding and in each block, in [0, 1).
        stochastic_depth: Probability of dropping a residual branch of the last block,
            in [0, 1). It grows linearly from 0 in the first block.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or patches do not fill the map.
    """
    image, x = image_input(image_size, normalization, channels)
    conv = functools.partial(
        StandardizedConv,
        padding="same",
        epsilon=kernel_epsilon,
        add_to_deviation=add_to_deviation,
    )
    norm = functools.partial(GroupNorm, GROUPS, epsilon=group_epsilon)
    channels = int(64 * width_factor)
    x = conv(channels, 7, strides=2, name="root_conv")(x)
    x = norm(name="root_norm")(x)
    x = keras.layers.ReLU(name="root_relu")(x)
    x = keras.layers.MaxPooling2D(
        3, 2, padding="same", data_format="channels_last", name="root_pool"
    )(x)
    for i, units in enumerate(resnet_depths):
        out = stage_widths[i] if stage_widths else 4 * channels * 2**i
        for j in range(units):
            x = _unit(i, j, out, conv, norm)(x)
    add_positions = position_embedding(
        x,  # (B, H / stride, W / stride, C), rounded up
        resampling,
        patch_size=patch_size,
        stride=_stride(resnet_depths),
        prefix=int(pool == "token"),
    )
    x = PatchEmbedding(patch_size, width=width, name="embedding")(x)  # (B, N, D)
    prefix = int(pool == "token")
    if prefix:
        x = PrefixTokens(name="class_token")(x)
    x = add_positions(x)
    x = encoder(
        x,
        depth=depth,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        activation=activation,
        epsilon=epsilon,
        dropout=dropout,
        stochastic_depth=stochastic_depth,
    )
    x = LayerNormalization(epsilon=epsilon, name="encoder_norm")(x)
    x = x[:, 0] if prefix else keras.ops.mean(x, axis=1)  # (B, D)
    if representation_size:
        x = Dense(representation_size, activation="tanh", name="pre_logits")(x)
    return ImageModel(image, head(num_classes)(x), name=name)


def _unit(
    i: int, j: int, out: int, conv: Callable[..., Any], norm: Callable[..., Any]
) -> PostactUnit:
    """Returns unit j of stage i of the ResNet, with `out` channels at its end."""
    strides = 2 if i and not j else 1
    shortcut = {}
    if not j:
        shortcut = {
            "projection": conv(out, 1, strides=strides, name="projection"),
            "projection_norm": norm(name="projection_norm"),
        }
    convs = [
        conv(out // 4, 1, name="conv_0"),
        conv(out // 4, 3, strides=strides, name="conv_1"),
        conv(out, 1, name="conv_2"),
    ]
    norms = [
        norm(name="norm_0"),
        norm(name="norm_1"),
        # Zero at first, so that each unit starts as its shortcut, as in vit_jax.
        norm(gamma_initializer="zeros", name="norm_2"),
    ]
    return PostactUnit(convs, norms, **shortcut, name=f"stage_{i}_unit_{j}")


# Stages, patch sizes and sizes: vit_jax/configs/models.py; R50+B/32 and R50+L/16 are of
# the scaling study in the first paper. The patch of R+Ti/16 covers 32 pixels, despite
# its name: the stem with its pooling has a stride of 4.
R = {"resnet_depths": [], "patch_size": 8}
R26 = {"resnet_depths": [2, 2, 2, 2], "patch_size": 1}
R50 = {"resnet_depths": [3, 4, 6, 3], "patch_size": 1}
R50_LONG = {"resnet_depths": [3, 4, 9], "patch_size": 1}  # the fourth stage's moved up

_hybrid = rows_of(HybridVisionTransformer, paper=__doc__)

RViTTi16 = _hybrid("RViTTi16", 6_337_704, 0.43, R, SIZES["Ti"])
R26ViTS32 = _hybrid("R26ViTS32", 36_431_912, 3.46, R26, SIZES["S"])
R26ViTB32 = _hybrid("R26ViTB32", 101_383_976, 6.71, R26, SIZES["B"])
R50ViTB32 = _hybrid("R50ViTB32", 110_945_832, 8.46, R50, SIZES["B"])
R50ViTB16 = _hybrid("R50ViTB16", 98_659_112, 21.54, R50_LONG, SIZES["B"])
R50ViTL32 = _hybrid("R50ViTL32", 328_994_856, 19.41, R50, SIZES["L"])
R50ViTL16 = _hybrid("R50ViTL16", 316_483_624, 65.54, R50_LONG, SIZES["L"])

__all__ = [
    "HybridVisionTransformer",
    "R26ViTB32",
    "R26ViTS32",
    "R50ViTB16",
    "R50ViTB32",
    "R50ViTL16",
    "R50ViTL32",
    "RViTTi16",
]
