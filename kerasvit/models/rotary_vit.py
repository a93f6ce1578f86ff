"""Vision Transformers with rotary positions: DINOv3, EVA-02, Perception Encoder.

Siméoni et al. 2025, "DINOv3", arXiv 2508.10104; Fang et al. 2023, "EVA-02: A Visual
Representation for Neon Genesis", arXiv 2303.11331; Bolya et al. 2025, "Perception
Encoder", arXiv 2504.13181; Heo et al. 2024, "Rotary Position Embedding for Vision
Transformer", arXiv 2403.13298. Numerics follow timm/models/eva.py.
"""

import functools
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, number, one_of
from kerasvit.layers import (
    MLP,
    EncoderBlock,
    LayerNormalization,
    LayerScaleBlock,
    PatchEmbedding,
    ResPostNormBlock,
    RotaryAttention,
    RotaryPositions,
    Rotation,
    SwiGLU,
)
from kerasvit.layers.rotation import COORDINATES, ORDERS, PAIRS
from kerasvit.types import PatchSize

from .builder import builder
from .checks import (
    check_final_norm,
    check_transformer,
    integer,
    integers,
    multiple_of,
    sizes_of,
)
from .encoder import SIZES, drop_rates, pooled, position_embedding, prefixed
from .image_model import ImageModel, head, image_input
from .variant import rows_of

# What `rotary` leaves out: DINOv3's.
ROTARY: dict[str, Any] = {
    "temperature": 100.0,
    "coordinates": "centered",
    "reference": None,
    "offset": 0.0,
    "order": "yx",
    "pairs": "halves",
    "mixed": False,
}
CHOICES = {
    "pool": ("token", "average", "average_then_norm", "attention"),
    "positions": ("none", "tokens", "patches"),
    "branch_norm": ("before", "after"),
    **dict.fromkeys(
        ("key_bias", "attention_norm", "mlp_norm", "final_norm", "class_token"),
        (True, False),
    ),
}


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks what only this builder has; returns all as plain JSON."""
    checked = check_transformer(kwargs, CHOICES)
    if kwargs["pool_heads"] is not None:
        checked["pool_heads"] = integer("pool_heads", kwargs["pool_heads"], 1)
    check_final_norm(kwargs)
    checked["rotary"] = _rotary(kwargs["rotary"])
    sizes = sizes_of(kwargs, functools.partial(multiple_of, patch=kwargs["patch_size"]))
    if kwargs["positions"] == "none":
        sizes["resampling"] = None
    return {**checked, **sizes}


def _rotary(given: Any) -> dict[str, Any] | None:
    """Returns the checked argument `rotary`, complete, as plain JSON."""
    if given is None:
        return None
    if not isinstance(given, dict) or not given.keys() <= ROTARY.keys():
        raise ArgumentError(
            f"`rotary` must be None or a dict of {', '.join(ROTARY)}. Received: "
            f"{given!r:.200}.",
            "rotary",
        )
    found = {**ROTARY, **given}
    found["temperature"] = number("temperature", found["temperature"], 1)
    found["offset"] = number("offset", found["offset"])
    known = {"coordinates": COORDINATES, "order": ORDERS, "pairs": PAIRS}
    for key, values in {**known, "mixed": (True, False)}.items():
        found[key] = one_of(key, found[key], values)
    reference = found["reference"]
    if reference is not None:
        found["reference"] = integers("reference", reference, 2, 1)
    return found


@builder(_checked)
def RotaryVisionTransformer(
    *,
    patch_size: PatchSize,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    channels: int = 3,
    num_classes: int = 1000,
    pool: str = "token",
    pool_heads: int | None = None,
    class_token: bool = True,
    register_tokens: int = 0,
    positions: str = "none",
    rotary: dict[str, Any] | None = ROTARY,
    patch_bias: bool = True,
    pre_norm: bool = False,
    final_norm: bool = True,
    branch_norm: str = "before",
    qkv_bias: bool = True,
    key_bias: bool = True,
    attention_norm: bool = False,
    mlp_norm: bool = False,
    layer_scale: float | None = None,
    mlp: str = "plain",
    activation: str = "gelu",
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "rotary_vit",
) -> ImageModel:
    """Builds a ViT with rotary positions: (batch, H, W, C) → logits.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        image_size: Height and width in pixels, multiples of P; an int for a square.
            (None, None): the model takes images of any such size.
        resampling: As for `VisionTransformer`, for a learned table of positions.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        pool: How tokens become one vector. "token": the class token. "average": the
            mean of the patches. "average_then_norm": the same, then the normalisation.
            "attention": attention pooling of all tokens (Perception Encoder).
        pool_heads: Heads of the attention pooling; None: `num_heads`. Its MLP has 4 D
            units.
        class_token: Whether the model has a class token.
        register_tokens: Number of learned tokens between the class token and the
            patches (arXiv 2309.16588).
        positions: Learned positions beside the rotary ones. "none"; "tokens": a table
            for all tokens; "patches": for the patches only.
        rotary: Arguments of `Rotation`; those left out are DINOv3's. None: no rotation
            (EVA).
        patch_bias: Whether the embedding of the patches has a bias.
        pre_norm: Whether the tokens are normalised before the first block.
        final_norm: Whether they are normalised after the last one.
        branch_norm: "before": each branch of a block normalises its input. "after": its
            output (EVA-02-CLIP, enormous).
        qkv_bias: Whether query, key and value have a bias.
        key_bias: Whether the key has one, if `qkv_bias`.
        attention_norm: Whether the joined heads are normalised (EVA-02-CLIP).
        mlp_norm: Whether the hidden layer of "swiglu" is normalised (EVA-02).
        layer_scale: Initial value of learned scales of the branches; None: no scales.
        mlp: "plain", or "swiglu" with a gated hidden layer.
        activation: Of plain MLPs: "gelu", exact, "gelu_tanh" or "quick_gelu".
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
        ValueError: An argument is out of range, or `image_size` is not a multiple of P.
    """
    image, pixels = image_input(image_size, normalization, channels)
    x = PatchEmbedding(patch_size, width=width, use_bias=patch_bias, name="embedding")(
        pixels
    )  # (B, N, D)
    prefix = class_token + register_tokens
    add = None
    if positions != "none":
        rows = prefix if positions == "tokens" else 0
        add = position_embedding(image, resampling, patch_size=patch_size, prefix=rows)
    everywhere = positions == "tokens"
    x = prefixed(x, class_token, register_tokens, add, everywhere=everywhere)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    if pre_norm:
        x = LayerNormalization(epsilon=epsilon, name="pre_norm")(x)
    places = []
    if rotary is not None:
        layer = RotaryPositions(patch_size, prefix=prefix, name="rotary_positions")
        places = [layer(image)]
    heads = {
        "num_heads": num_heads,
        "use_bias": qkv_bias,
        "key_bias": key_bias,
        "inner_norm": attention_norm,
        "epsilon": epsilon,
        "dropout": dropout,
    }
    gated = functools.partial(SwiGLU, inner_norm=mlp_norm, epsilon=epsilon)
    plain = functools.partial(MLP, activation=activation)
    branch = gated if mlp == "swiglu" else plain
    for i, rate in enumerate(drop_rates(stochastic_depth, depth)):
        x = _block(
            heads,
            branch(mlp_dim, dropout=dropout, name="mlp"),
            rotary=rotary,
            branch_norm=branch_norm,
            layer_scale=layer_scale,
            epsilon=epsilon,
            stochastic_depth=rate,
            name=f"encoder_block_{i}",
        )(x, *places)
    x = pooled(
        x,
        pool,
        0 if pool == "attention" else prefix,
        final_norm=final_norm,
        epsilon=epsilon,
        num_heads=pool_heads or num_heads,
        mlp_dim=4 * width,
    )
    return ImageModel(image, head(num_classes)(x), name=name)


def _block(
    heads: dict[str, Any],
    mlp: keras.layers.Layer,
    *,
    rotary: dict[str, Any] | None,
    branch_norm: str,
    layer_scale: float | None,
    **block: Any,
) -> EncoderBlock:
    """Returns a block.

    Args:
        heads: Arguments of `RotaryAttention`.
        mlp: MLP of the block.
        rotary, branch_norm, layer_scale: As for the builder.
        **block: Arguments of `EncoderBlock`.
    """
    rotation = None if rotary is None else Rotation(**rotary, name="rotation")
    attention = RotaryAttention(rotation=rotation, name="attention", **heads)
    if branch_norm == "after":
        return ResPostNormBlock(attention, mlp, **block)
    if layer_scale is None:
        return EncoderBlock(attention, mlp, **block)
    return LayerScaleBlock(attention, mlp, init_value=layer_scale, **block)


_rotary_vit = rows_of(RotaryVisionTransformer, paper=__doc__)

# Table 3 of DINOv3, and timm's `vit_*_dinov3`. The gated MLPs have the sizes of plain
# ones.
_DINOV3: dict[str, Any] = {
    "patch_size": 16,
    "image_size": 256,
    "register_tokens": 4,
    "qkv_bias": False,
    "layer_scale": 1e-5,
    "epsilon": 1e-5,
}
_GATED = {**_DINOV3, "mlp": "swiglu"}
_HUGE = {"width": 1280, "depth": 32, "num_heads": 20, "mlp_dim": 5120}
_7B = {"width": 4096, "depth": 40, "num_heads": 32, "mlp_dim": 8192}

_QV_BIAS = {"qkv_bias": True, "key_bias": False}

DINOv3Ti16 = _rotary_vit("DINOv3Ti16", 5_682_664, 1.74, SIZES["Ti"], _DINOV3, _QV_BIAS)
DINOv3S16 = _rotary_vit("DINOv3S16", 21_971_944, 6.25, SIZES["S"], _DINOV3)
DINOv3SPlus16 = _rotary_vit("DINOv3SPlus16", 29_068_264, 8.09, SIZES["S"], _GATED)
DINOv3B16 = _rotary_vit("DINOv3B16", 86_410_216, 23.58, SIZES["B"], _DINOV3)
DINOv3L16 = _rotary_vit("DINOv3L16", 304_104_424, 82.37, SIZES["L"], _DINOV3)
DINOv3HPlus16 = _rotary_vit("DINOv3HPlus16", 841_790_440, 224.78, _HUGE, _GATED)
DINOv3g16 = _rotary_vit("DINOv3g16", 1_136_010_216, 304.25, SIZES["g"], _GATED)
DINOv37B16 = _rotary_vit("DINOv37B16", 6_720_127_976, 1774.67, _7B, _GATED)

# Table 2 of EVA-02; g of arXiv 2211.07636, whose blocks are those of a plain ViT.
_EVA: dict[str, Any] = {
    "patch_size": 14,
    "pool": "average_then_norm",
    "positions": "tokens",
    "key_bias": False,
    "rotary": None,
}
_EVA02: dict[str, Any] = {
    **_EVA,
    "mlp": "swiglu",
    "rotary": {
        **ROTARY,
        "temperature": 10_000.0,
        "coordinates": "index",
        "reference": [16, 16],
        "pairs": "neighbours",
    },
}
_EVA_G = {"width": 1408, "depth": 40, "num_heads": 16, "mlp_dim": 6144}

_TI = {**SIZES["Ti"], "mlp_dim": 512}
_S = {**SIZES["S"], "mlp_dim": 1024}
_B = {**SIZES["B"], "mlp_dim": 2048, "mlp_norm": True}
_L = {**SIZES["L"], "mlp_dim": 2730, "mlp_norm": True}

EVA02Ti14 = _rotary_vit("EVA02Ti14", 5_695_144, 1.70, _TI, _EVA02)
EVA02S14 = _rotary_vit("EVA02S14", 22_006_120, 6.12, _S, _EVA02)
EVA02B14 = _rotary_vit("EVA02B14", 86_527_720, 23.16, _B, _EVA02)
EVA02L14 = _rotary_vit("EVA02L14", 304_293_800, 81.00, _L, _EVA02)
EVAg14 = _rotary_vit("EVAg14", 1_012_555_112, 267.03, _EVA_G, _EVA)

# Table 4 of EVA-02, and EVA-CLIP, arXiv 2303.15389.
_CLIP = {**_EVA, "pool": "token"}
_CLIP02 = {**_EVA02, "pool": "token", "attention_norm": True}
_E = {"width": 1792, "depth": 64, "num_heads": 16, "mlp_dim": 15_360}
_AFTER = {**_CLIP, "branch_norm": "after"}

EVA02CLIPB16 = _rotary_vit(
    "EVA02CLIPB16", 86_638_312, 17.56, _B, _CLIP02, {"patch_size": 16}
)
EVA02CLIPL14 = _rotary_vit("EVA02CLIPL14", 304_342_952, 81.00, _L, _CLIP02)
EVA02CLIPE14 = _rotary_vit("EVA02CLIPE14", 4_350_513_896, 1132.16, _E, _AFTER)
EVACLIPg14 = _rotary_vit("EVACLIPg14", 1_012_555_112, 267.03, _EVA_G, _CLIP)

# RoPE-ViT, arXiv 2403.13298, and timm's `vit_*_rope_reg*`.
_AXIAL: dict[str, Any] = {
    "patch_size": 16,
    "layer_scale": 1e-5,
    "rotary": {**ROTARY, "coordinates": "index", "order": "xy", "pairs": "neighbours"},
}
_MIXED = {**_AXIAL, "rotary": {**_AXIAL["rotary"], "temperature": 10.0, "mixed": True}}
_AVERAGE = {
    **_AXIAL,
    **_QV_BIAS,
    "image_size": 256,
    "pool": "average_then_norm",
    "class_token": False,
    "register_tokens": 1,
    "rotary": _EVA02["rotary"],
}
_NO_BIAS = {"qkv_bias": False, "key_bias": True}
_FOUR = {"register_tokens": 4}

RoPEAxialViTS16 = _rotary_vit("RoPEAxialViTS16", 21_984_232, 4.60, SIZES["S"], _AXIAL)
RoPEAxialViTB16 = _rotary_vit("RoPEAxialViTB16", 86_434_792, 17.56, SIZES["B"], _AXIAL)
RoPEAxialViTL16 = _rotary_vit("RoPEAxialViTL16", 304_174_056, 61.55, SIZES["L"], _AXIAL)
RoPEMixedViTS16 = _rotary_vit("RoPEMixedViTS16", 21_988_840, 4.60, SIZES["S"], _MIXED)
RoPEMixedViTB16 = _rotary_vit("RoPEMixedViTB16", 86_444_008, 17.56, SIZES["B"], _MIXED)
RoPEMixedViTL16 = _rotary_vit("RoPEMixedViTL16", 304_198_632, 61.55, SIZES["L"], _MIXED)
RoPEViTM16 = _rotary_vit("RoPEViTM16", 38_743_016, 10.61, SIZES["M"], _AVERAGE)
RoPEViTMDeep16 = _rotary_vit(
    "RoPEViTMDeep16", 63_945_704, 17.62, SIZES["MDeep"], _AVERAGE, _NO_BIAS
)
RoPEViTBetwixt16 = _rotary_vit(
    "RoPEViTBetwixt16", 60_226_920, 16.50, SIZES["Betwixt"], {**_AVERAGE, **_FOUR}
)
RoPEViTB16 = _rotary_vit("RoPEViTB16", 86_425_576, 23.20, SIZES["B"], _AVERAGE)

# The Perception Encoder's core pools by attention. The outputs of its spatial and
# language encoders are not normalised; see timm's `vit_pe_*`.
_PE_G = {"width": 1536, "depth": 50, "num_heads": 16, "mlp_dim": 8960}
_SPATIAL = {"pool": "average", "pool_heads": None, "final_norm": False}
_LANG = {**_SPATIAL, "layer_scale": 0.1}


def _pe(side: int, patch_size: int) -> dict[str, Any]:
    """Arguments of an encoder that was trained with a grid of `side`² patches."""
    rotary = {**_EVA02["rotary"], "reference": [side, side], "order": "xy"}
    return {
        "patch_size": patch_size,
        "image_size": side * patch_size,
        "pool": "attention",
        "pool_heads": 8,
        "positions": "tokens",
        "rotary": {**rotary, "offset": 1.0},
        "pre_norm": True,
        "patch_bias": False,
        "epsilon": 1e-5,
    }


def _pe_g() -> dict[str, Any]:
    """Arguments of the largest encoders, which have no class token."""
    found = _pe(32, 14)
    return {**found, "rotary": {**found["rotary"], "offset": 0.0}, "class_token": False}


PECoreTi16 = _rotary_vit("PECoreTi16", 6_235_240, 4.73, SIZES["Ti"], _pe(24, 16))
PECoreS16 = _rotary_vit("PECoreS16", 23_971_048, 15.66, SIZES["S"], _pe(24, 16))
PECoreB16 = _rotary_vit("PECoreB16", 93_655_528, 17.80, SIZES["B"], _pe(14, 16))
PECoreL14 = _rotary_vit("PECoreL14", 317_127_656, 192.18, SIZES["L"], _pe(24, 14))
PECoreG14 = _rotary_vit("PECoreG14", 1_881_603_560, 2059.32, _PE_G, _pe_g())
PESpatialTi16 = _rotary_vit(
    "PESpatialTi16", 5_876_200, 10.43, SIZES["Ti"], _pe(32, 16), _SPATIAL
)
PESpatialS16 = _rotary_vit(
    "PESpatialS16", 22_368_232, 31.75, SIZES["S"], _pe(32, 16), _SPATIAL
)
PESpatialB16 = _rotary_vit(
    "PESpatialB16", 87_202_792, 107.03, SIZES["B"], _pe(32, 16), _SPATIAL
)
PESpatialL14 = _rotary_vit(
    "PESpatialL14", 304_989_160, 361.80, SIZES["L"], _pe(32, 14), _SPATIAL
)
PESpatialG14 = _rotary_vit(
    "PESpatialG14", 1_853_424_104, 2054.46, _PE_G, _pe_g(), _LANG
)
PELangL14 = _rotary_vit(
    "PELangL14", 292_440_040, 346.75, {**SIZES["L"], "depth": 23}, _pe(32, 14), _LANG
)
PELangG14 = _rotary_vit(
    "PELangG14", 1_742_459_624, 1931.25, {**_PE_G, "depth": 47}, _pe_g(), _LANG
)

__all__ = [
    "RotaryVisionTransformer",
    "DINOv37B16",
    "DINOv3B16",
    "DINOv3HPlus16",
    "DINOv3L16",
    "DINOv3S16",
    "DINOv3SPlus16",
    "DINOv3Ti16",
    "DINOv3g16",
    "EVA02B14",
    "EVA02CLIPB16",
    "EVA02CLIPE14",
    "EVA02CLIPL14",
    "EVA02L14",
    "EVA02S14",
    "EVA02Ti14",
    "EVACLIPg14",
    "EVAg14",
    "PECoreB16",
    "PECoreG14",
    "PECoreL14",
    "PECoreS16",
    "PECoreTi16",
    "PELangG14",
    "PELangL14",
    "PESpatialB16",
    "PESpatialG14",
    "PESpatialL14",
    "PESpatialS16",
    "PESpatialTi16",
    "RoPEAxialViTB16",
    "RoPEAxialViTL16",
    "RoPEAxialViTS16",
    "RoPEMixedViTB16",
    "RoPEMixedViTL16",
    "RoPEMixedViTS16",
    "RoPEViTB16",
    "RoPEViTBetwixt16",
    "RoPEViTM16",
    "RoPEViTMDeep16",
]
