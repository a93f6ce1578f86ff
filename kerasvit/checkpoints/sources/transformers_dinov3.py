"""Hugging Face transformers' DINOv3.

Tensor names as `DINOv3ViTModel` writes them, and as its `state_dict()` has them since
transformers 5; transformers/models/dinov3_vit/modeling_dinov3_vit.py.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from .source import count
from .transformers import (
    REGISTERS,
    TransformersSource,
    activation,
    check,
    open_arguments,
    registers,
)

# DINOv2 and ViT have one more part in this name.
_PATCHES = "embeddings.patch_embeddings.weight"
_BLOCK, _OURS = "layer.{i}.", "encoder_block_{i}/"
_ATTENTION, _MLP = "layer.0.attention.", "layer.0.mlp."


class TransformersDinov3(TransformersSource):
    """Backbones of DINOv3."""

    builder = "RotaryVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return _PATCHES in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        width, channels, *_ = shapes.of(_PATCHES, 4)
        patch = shapes.patch_size(_PATCHES)
        query_bias = _ATTENTION + "q_proj.bias" in shapes
        gated = _MLP + "gate_proj.weight" in shapes
        check(config, {"value_bias": query_bias, "proj_bias": True, "mlp_bias": True})
        if gated:
            check(config, {"hidden_act": "silu"})
        numbers = {
            "patch_size": patch,
            "width": width,
            "depth": count(shapes, "layer.{}.norm1.weight"),
            "mlp_dim": shapes.of(_MLP + "down_proj.weight", 2)[1],
        }
        if config.get("model_type") or "num_attention_heads" in config:
            numbers["num_heads"] = config.get("num_attention_heads", 6)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments={
                "channels": channels,
                "num_classes": 0,
                "pool": "token",
                "class_token": True,
                "register_tokens": registers(shapes),
                "positions": "none",
                "rotary": {"temperature": config.get("rope_theta", 100.0)},
                "qkv_bias": query_bias,
                "key_bias": not query_bias or _ATTENTION + "k_proj.bias" in shapes,
                "layer_scale": config.get("layerscale_value", 1.0),
                "mlp": "swiglu" if gated else "plain",
                "activation": "gelu" if gated else activation(config, "gelu"),
                "epsilon": config.get("layer_norm_eps", 1e-5),
            },
            kernel=self.kernel,
            stride=patch,
            image_size=config.image_size("image_size"),
            open_arguments=open_arguments(config),
            architecture=config.text("model_type"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        attention, mlp = _OURS + "attention/", _OURS + "mlp/"
        return KeyMap(
            ("embeddings.cls_token", "class_token/tokens"),
            (REGISTERS, "register_tokens/tokens"),
            (_PATCHES, "embedding/kernel", CONVOLUTION),
            ("embeddings.patch_embeddings.bias", "embedding/bias"),
            *torch_norm(_BLOCK + "norm1", _OURS + "attention_norm"),
            *torch_dense(_BLOCK + "attention.q_proj", attention + "query"),
            *torch_dense(_BLOCK + "attention.k_proj", attention + "key"),
            *torch_dense(_BLOCK + "attention.v_proj", attention + "value"),
            *torch_dense(_BLOCK + "attention.o_proj", attention + "output"),
            (_BLOCK + "layer_scale1.lambda1", _OURS + "attention_scale"),
            *torch_norm(_BLOCK + "norm2", _OURS + "mlp_norm"),
            *torch_dense(_BLOCK + "mlp.gate_proj", mlp + "gate"),
            *torch_dense(_BLOCK + "mlp.up_proj", mlp + "dense_0"),
            *torch_dense(_BLOCK + "mlp.down_proj", mlp + "dense_1"),
            (_BLOCK + "layer_scale2.lambda1", _OURS + "mlp_scale"),
            *torch_norm("norm", "encoder_norm"),
        )

    def short_name(self, name: str) -> str:
        return name.removeprefix("model.")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name == "embeddings.mask_token":
            return "takes the place of masked patches in training only"
        return None
