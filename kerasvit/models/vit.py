"""Vision Transformer.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", arXiv 2010.11929. Numerics
follow google-research/vision_transformer vit_jax/models_vit.py, big_vision
models/vit.py and timm/models/vision_transformer.py, by the arguments in which they
differ.
"""

import functools
from typing import Any

import keras

from kerasvit.layers import (
    Dense,
    PatchEmbedding,
)
from kerasvit.types import PatchSize

from .builder import builder
from .checks import (
    OF_TOKEN,
    at_least_one,
    check_final_norm,
    check_transformer,
    integer,
    multiple_of,
    sizes_of,
)
from .encoder import SIZES, encoder, pooled, position_embedding, prefixed
from .image_model import ImageModel, head, image_input
from .variant import rows_of

CHOICES = {
    "pool": (
        *("token", "average", "average_then_norm", "token_and_average", "attention"),
    ),
    "positions": ("tokens", "patches", "sincos2d"),
    "class_token": (True, False, None),
    "final_norm": (True, False),
}


def check_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks what only a Vision Transformer has; returns all as plain JSON."""
    checked = check_transformer(kwargs, CHOICES)
    size = kwargs["representation_size"]
    if size is not None:
        checked["representation_size"] = integer("representation_size", size, 0) or None
    if kwargs["class_token"] is None:
        checked["class_token"] = kwargs["pool"] in OF_TOKEN
    check_final_norm(kwargs)
    fitting = at_least_one if kwargs["partial_patches"] else multiple_of
    fitting = functools.partial(fitting, patch=kwargs["patch_size"])
    return {**checked, **sizes_of(kwargs, fitting)}


@builder(check_arguments)
def VisionTransformer(
    *,
    patch_size: PatchSize,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    partial_patches: bool = False,
    channels: int = 3,
    num_classes: int = 1000,
    pool: str = "token",
    class_token: bool | None = None,
    register_tokens: int = 0,
    positions: str = "tokens",
    representation_size: int | None = None,
    patch_bias: bool = True,
    pre_norm: bool = False,
    final_norm: bool = True,
    qkv_bias: bool = True,
    layer_scale: float | None = None,
    mlp: str = "plain",
    activation: str = "gelu",
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "vit",
) -> ImageModel:
    """Builds a Vision Transformer: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        image_size: Height and width in pixels, multiples of P; an int for a square.
            (None, None): the model takes images of any such size, and resamples its
            position table in the graph.
        resampling: {"image_size": that of the position table, "kernel": the kernel to
            resample it, one of `kerasvit.layers.position_embedding.POSITION_KERNELS`},
            for an `image_size` of (None, None), where loading sets it. None: 224 pixels
            and "bicubic_antialias".
        partial_patches: True: `image_size` need not be a multiple of P. The rest at the
            bottom and at the right is cropped, as in timm and big_vision (SigLIP: 384
            pixels, 27 patches of 14).
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        pool: How tokens become one vector. "token": the class token after the last
            normalisation. "average": normalise, then average the patches (Google).
            "average_then_norm": the other order (timm). "token_and_average": the class
            token and the average of the patches, one behind the other, 2 · D numbers,
            as the classifiers of DINOv2. "attention": big_vision's MAP head, over the
            patches.
        class_token: Whether the model has a class token; None: if `pool` takes it.
        register_tokens: Number of learned tokens between the class token and the
            patches (arXiv 2309.16588).
        positions: "tokens": a learned embedding of each token, including class and
            register tokens. "patches": of the patches only, added before the other
            tokens are inserted. "sincos2d": fixed sines and cosines for the patches
            (arXiv 2205.01580).
        representation_size: Size of a dense layer with tanh before the head, the
            paper's pre-logits; None: no such layer.
        patch_bias: Whether the embedding of the patches has a bias; CLIP's has none.
        pre_norm: Whether the tokens are normalised before the first block, as in CLIP.
        final_norm: Whether they are normalised after the last one; not in RADIO.
        qkv_bias: Whether query, key and value have a bias.
        layer_scale: Initial value of learned scales of the residual branches (arXiv
            2103.17239); None: no scales.
        mlp: MLPs of the blocks. "plain": two dense layers with `activation` in between.
            "swiglu": with a gated hidden layer, of DINOv2's giant model (arXiv
            2002.05202).
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu", CLIP's.
        epsilon: Epsilon of each LayerNormalization.
        dropout: Dropout rate after the position embedding and in each block, in [0, 1).
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
    x = PatchEmbedding(
        patch_size,
        width=width,
        partial=partial_patches,
        use_bias=patch_bias,
        name="embedding",
    )(x)  # (B, N, D)
    prefix = class_token + register_tokens
    add_positions = position_embedding(
        image,
        resampling,
        patch_size=patch_size,
        prefix=prefix if positions == "tokens" else 0,
        sincos=positions == "sincos2d",
    )
    everywhere = positions == "tokens"
    x = prefixed(x, class_token, register_tokens, add_positions, everywhere=everywhere)
    x = encoder(
        x,
        depth=depth,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        activation=activation,
        epsilon=epsilon,
        dropout=dropout,
        stochastic_depth=stochastic_depth,
        qkv_bias=qkv_bias,
        layer_scale=layer_scale,
        mlp=mlp,
        pre_norm=pre_norm,
    )
    x = pooled(
        x,
        pool,
        prefix,
        final_norm=final_norm,
        epsilon=epsilon,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        activation=activation,
    )
    if representation_size:
        x = Dense(representation_size, activation="tanh", name="pre_logits")(x)
    return ImageModel(image, head(num_classes)(x), name=name)


_vit = rows_of(VisionTransformer, paper=__doc__)

ViTTi16 = _vit("ViTTi16", 5_717_416, 1.25, SIZES["Ti"], patch_size=16)
ViTS32 = _vit("ViTS32", 22_878_952, 1.14, SIZES["S"], patch_size=32)
ViTS16 = _vit("ViTS16", 22_050_664, 4.60, SIZES["S"], patch_size=16)
ViTS14 = _vit("ViTS14", 22_004_584, 6.12, SIZES["S"], patch_size=14)
ViTS8 = _vit("ViTS8", 22_055_272, 22.41, SIZES["S"], patch_size=8)
ViTB32 = _vit("ViTB32", 88_224_232, 4.41, SIZES["B"], patch_size=32)
ViTB16 = _vit("ViTB16", 86_567_656, 17.56, SIZES["B"], patch_size=16)
ViTB14 = _vit("ViTB14", 86_475_496, 23.16, SIZES["B"], patch_size=14)
ViTB8 = _vit("ViTB8", 86_576_872, 78.15, SIZES["B"], patch_size=8)
ViTL32 = _vit("ViTL32", 306_535_400, 15.38, SIZES["L"], patch_size=32)
ViTL16 = _vit("ViTL16", 304_326_632, 61.55, SIZES["L"], patch_size=16)
ViTL14 = _vit("ViTL14", 304_203_752, 81.01, SIZES["L"], patch_size=14)
ViTSo400M16 = _vit("ViTSo400M16", 413_735_896, 83.57, SIZES["So400M"], patch_size=16)
ViTSo400M14 = _vit("ViTSo400M14", 413_597_656, 109.93, SIZES["So400M"], patch_size=14)
ViTWee16 = _vit("ViTWee16", 13_400_296, 2.85, SIZES["Wee"], patch_size=16)
ViTLittle16 = _vit("ViTLittle16", 22_487_208, 4.69, SIZES["Little"], patch_size=16)
ViTM16 = _vit("ViTM16", 38_837_736, 7.99, SIZES["M"], patch_size=16)
ViTMDeep16 = _vit("ViTMDeep16", 64_056_808, 13.27, SIZES["MDeep"], patch_size=16)
ViTBetwixt16 = _vit("ViTBetwixt16", 60_343_400, 12.31, SIZES["Betwixt"], patch_size=16)
ViTSo150M16 = _vit("ViTSo150M16", 134_072_424, 27.42, SIZES["So150M"], patch_size=16)
ViTSo150MDeep16 = _vit(
    "ViTSo150MDeep16", 136_027_112, 27.92, SIZES["So150MDeep"], patch_size=16
)
ViTH14 = _vit("ViTH14", 632_045_800, 167.3, SIZES["H"], patch_size=14)
GIANT = {**SIZES["g"], "mlp": "swiglu", "layer_scale": 1e-5}
ViTg14 = _vit("ViTg14", 1_136_306_664, 299.39, GIANT, patch_size=14)

__all__ = [
    "VisionTransformer",
    "ViTB14",
    "ViTB16",
    "ViTB32",
    "ViTB8",
    "ViTBetwixt16",
    "ViTH14",
    "ViTL14",
    "ViTL16",
    "ViTL32",
    "ViTLittle16",
    "ViTM16",
    "ViTMDeep16",
    "ViTS14",
    "ViTS16",
    "ViTS32",
    "ViTS8",
    "ViTSo150M16",
    "ViTSo150MDeep16",
    "ViTSo400M14",
    "ViTSo400M16",
    "ViTTi16",
    "ViTWee16",
    "ViTg14",
]
