"""timm's EVA models: EVA-02, DINOv3, Perception Encoder, ViTs with rotary positions.

Tensor names and layouts as timm/models/eva.py writes them.
"""

from typing import Any

import numpy as np

from ..config import Shapes
from ..key_map import (
    CONVOLUTION,
    KeyMap,
    Transform,
    torch_dense,
    torch_norm,
    torch_stacked,
)
from .timm_vit import GATED, POOLING


def key_map(kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
    """Returns the map of an EVA model's names."""
    names = set(shapes or ())
    block, ours = "blocks.{i}.", "encoder_block_{i}/"
    attention = ours + "attention/"
    qkv = tuple(f"{attention}{name}" for name in ("query", "key", "value"))
    behind = kwargs["pool"] == "average_then_norm"
    if names:
        behind = "norm.weight" not in names
    paths = tuple(
        f"encoder_block_{i}/attention/frequencies" for i in range(kwargs["depth"])
    )
    by_block = Transform(
        lambda a: [a[:, i] for i in range(a.shape[1])],
        lambda arrays: np.stack(arrays, axis=1),
    )
    packed = "blocks.0.mlp.fc1_g.weight" not in names
    gate = (
        GATED
        if kwargs["mlp"] == "swiglu" and packed
        else (
            *torch_dense(block + "mlp.fc1_g", ours + "mlp/gate"),
            *torch_dense(block + "mlp.fc1_x", ours + "mlp/dense_0"),
        )
    )
    return KeyMap(
        ("cls_token", "class_token/tokens"),
        ("reg_token", "register_tokens/tokens"),
        ("pos_embed", "position_embedding/table"),
        ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
        ("patch_embed.proj.bias", "embedding/bias"),
        *torch_norm("norm_pre", "pre_norm"),
        *torch_norm(block + "norm1", ours + "attention_norm"),
        (block + "attn.q_bias", qkv[0] + "/bias"),
        (block + "attn.v_bias", qkv[2] + "/bias"),
        *torch_stacked(block + "attn.qkv", *qkv),
        *(
            rule
            for name, path in zip("qkv", qkv, strict=True)
            for rule in torch_dense(f"{block}attn.{name}_proj", path)
        ),
        *torch_norm(block + "attn.norm", attention + "norm"),
        *torch_dense(block + "attn.proj", attention + "output"),
        (block + "gamma_1", ours + "attention_scale"),
        *torch_norm(block + "norm2", ours + "mlp_norm"),
        *(gate if kwargs["mlp"] != "plain" else ()),
        *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
        *torch_norm(block + "mlp.norm", ours + "mlp/norm"),
        *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
        (block + "gamma_2", ours + "mlp_scale"),
        ("rope.freqs", paths, by_block),
        *torch_norm("fc_norm" if behind else "norm", "encoder_norm"),
        *POOLING,
        *torch_dense("head", "head"),
    )
