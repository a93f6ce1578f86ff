"""Properties of timm's models that the name determines and the tensors do not.

The properties follow from words of the name, such as vit_base_patch16_siglip_256. The
module covers all models that timm 1.0.31 registers in timm/models/vision_transformer.py
and deit.py, and the hybrids.
"""

import re

from ..config import Config, Shapes
from ..reader import CheckpointError, printable
from .timm import model_args

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu")
_HEADS = {
    "vit_base_patch16_gap_224": 16, "vit_base_patch32_plus_256": 14,
    "vit_base_patch16_plus_240": 14, "vit_base_patch16_plus_clip_240": 14,
    "vit_giant_patch14_dinov2": 24, "vit_giant_patch14_reg4_dinov2": 24,
    "vit_giant_patch14_reg1_tipsv2": 24, "vit_giant_patch16_radio_v3": 24,
    "test_vit": 2, "test_vit2": 2,
    # Models with only a size in the name.
    "tiny": 3, "wee": 4, "xsmall": 4, "little": 5, "small": 6, "medium": 8,
    "mediumd": 8, "betwixt": 10, "base": 12, "so150m2": 13, "so150m": 14,
    "intern300m": 16, "large": 16, "huge": 16, "so400m": 16, "giant": 16,
    "giantopt": 16, "gigantic": 16,
}  # fmt: skip
_TANH = "(base_patch32|so400m_patch16|giantopt_patch16)_siglip|large_.*siglip.*_512"
# The same models by (width, patch size, rows of the position table or None for any).
# They have no class token, registers or LayerScale; timm's others differ in size.
_TANH_SIZES = {
    (768, 32, None), (1152, 16, None), (1536, 16, None), (1024, 16, 1024),
}  # fmt: skip
# Models whose class and register tokens have no rows in the position table.
_NO_ROWS = r"flexivit|deit3|radio|^(?!.*so150m).*_reg\d"

_WORDS = (
    rf"vit|flexivit|deit3?|eva|test|vit2|{'|'.join(_HEADS)}|patch\d+|\d+|reg\d|gap|map"
    "|plus|siglip|clip|quickgelu|dinov2|tipsv2|radio|v[34]|36x1|distilled|miil|sam|dino|in2[12]k"
    "|in2[12]ft1k"
    r"|r\d*|s\d+|p8"  # hybrids
)
_UNLIKE = {
    "_rpn_": "its normalisations after the branches",
    "_18x2_": "parallel branches",
    "_xp_": "parallel branches and RMSNorm",
    "_(pwee|dpwee)_": "parallel branches",
    "_(dwee|dlittle)_": "differential attention",
    "aimv2_": "gated MLPs (SwiGLU) and RMSNorm",
    "beit3_": "normalisations inside its branches",
    "test_vit3": "attention pooling that includes the register tokens",
    "test_vit4": "RMSNorm",
    "relpos_": "biases for relative positions",
    "_sapiens2_": "grouped queries, RMSNorm and gates of the attention",
}
# Arguments that are applied, that the tensors determine, and for training only.
_ARGUMENTS = {
    "num_heads", "act_layer", "global_pool", "no_embed_class", "init_values",
    "img_size", "pool_include_prefix",
    "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "mlp_ratio",
    "qkv_bias", "proj_bias", "qk_norm", "class_token", "reg_tokens", "pos_embed",
    "pre_norm", "final_norm", "fc_norm",
    "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate",
    "attn_drop_rate", "drop_path_rate", "weight_init", "fix_init",
    "dynamic_img_size",
}  # fmt: skip

# Of these, only one value is built.
_BUILT = {"proj_bias": True, "qk_norm": False, "pos_embed": "learn"}


def check_supported(config: Config) -> None:
    """Checks that the configuration describes a plain ViT.

    Raises:
        CheckpointError: The architecture has other parts, or its name is unknown.
    """
    name, args = _name(config), model_args(config)
    shown = printable(name or "ViT")
    other = sorted(
        key for key in args if args[key] is not None and key not in _ARGUMENTS
    )
    if other:
        raise CheckpointError(
            f"The configuration asks for timm's {shown} with the arguments "
            f"{', '.join(map(printable, other))}, which kerasvit does not know. It "
            f"knows {', '.join(sorted(_ARGUMENTS))}."
        )
    for key, value in _BUILT.items():
        if args.get(key) not in (None, value):
            raise CheckpointError(
                f"The configuration asks for timm's {shown} with {key}="
                f"{args[key]!r:.100}. kerasvit builds {value!r} only: use the files of "
                "another model."
            )
    if not name:
        return
    refuse_unlike(name)
    if not all(re.fullmatch(_WORDS, word) for word in name.split("_")):
        raise CheckpointError(
            f"kerasvit does not know timm's {shown}, and the tensors do not determine "
            "all that it computes. If it is a plain ViT, put the .safetensors file "
            "into a folder without config.json and build its variant, with "
            "`num_heads` and `activation` if they differ."
        )


def refuse_unlike(name: str) -> None:
    """Raises if timm's model of this name is known to have parts of its own.

    Raises:
        CheckpointError: It has; the message names the part.
    """
    for pattern, what in _UNLIKE.items():
        if re.search(pattern, name + "_"):
            raise CheckpointError(
                f"timm's {printable(name)} has {what}: kerasvit cannot build it."
            )


def heads(config: Config) -> int | None:
    """Returns timm's number of attention heads, or None."""
    name = _name(config)
    size = next((word for word in name.split("_") if word in _HEADS), "")
    stated = model_args(config).integer("num_heads")
    return _HEADS.get(name, _HEADS.get(size)) if stated is None else stated


def check_supported_names(shapes: Shapes, config: Config) -> None:
    """Checks that the tensor names do not belong to an unsupported model.

    Raises:
        CheckpointError: They do; the message names the unsupported part.
    """
    parts = {"cls_token", "reg_token", "blocks.0.ls1.gamma", "blocks.0.attn.qkv.bias"}
    if not (names_model(config) or parts & set(shapes)):
        raise CheckpointError(
            "The file has the names of timm's vit_base_patch16_rpn_224, with its "
            "normalisations after the branches, which kerasvit cannot build. Of timm's "
            "models only that one has no class token, no registers, no LayerScale and "
            "no bias of query, key and value. If this is a ViT with its normalisations "
            "before the branches, put a config.json with the model_args of timm beside "
            'the file, such as {"model_args": {"num_heads": 12}}.'
        )


def names_model(config: Config) -> bool:
    """Returns whether the configuration identifies timm's model."""
    return bool(_name(config) or model_args(config))


def tanh_by_size(shapes: Shapes) -> bool:
    """Returns whether timm's only models of this size have the approximate GELU."""
    if {"cls_token", "reg_token", "blocks.0.ls1.gamma"} & set(shapes):
        return False
    width, _, patch, _ = shapes.of("patch_embed.proj.weight", 4)
    rows = shapes.side("pos_embed", 1, 3, default=0)
    return bool({(width, patch, None), (width, patch, rows)} & _TANH_SIZES)


def activation(config: Config, gated: bool = False) -> str:
    """Returns the activation that timm builds; the default for `gated` MLPs."""
    if gated:
        stated = model_args(config).get("act_layer") or "silu"
        if stated == "silu":
            return "gelu"  # of no layer
        raise CheckpointError(
            f"The configuration asks for gated MLPs with {stated!r:.100}. kerasvit "
            "builds silu, timm's SwiGLU."
        )
    fixed = "gelu_tanh" if re.search(_TANH, _name(config)) else "gelu"
    fixed = "quick_gelu" if "_quickgelu_" in _name(config) else fixed
    name = model_args(config).get("act_layer", fixed) or "gelu"
    if name not in ACTIVATIONS:
        raise CheckpointError(
            f"The configuration asks for timm's activation {name!r}. kerasvit "
            f"builds {', '.join(ACTIVATIONS)}; gelu is the exact one."
        )
    return name


def epsilon(shapes: Shapes, config: Config) -> float:
    """Returns the epsilon of timm's normalisations: 1e-5 in its CLIP models."""
    name = _name(config)
    clip = "_clip_" in name if name else "norm_pre.weight" in shapes
    return 1e-5 if clip else 1e-6


def no_embed_class(config: Config) -> bool:
    """Returns whether class and register tokens lack rows in the position table."""
    return model_args(config).get(
        "no_embed_class", bool(re.search(_NO_ROWS, _name(config)))
    )


def _name(config: Config) -> str:
    return config.text("architecture").split(".")[0]
