"""timm's distilled DeiTs. Plain DeiTs and DeiT IIIs are ViTs in timm.

Tensor names as `VisionTransformerDistilled` of timm/models/deit.py and the authors'
code, facebookresearch/deit, write them.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Any

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, torch_dense
from . import timm_vit
from .timm import TimmSource, cfg, differing

_SHARED = (
    *("channels", "num_classes", "qkv_bias", "layer_scale", "activation", "epsilon"),
)


class TimmDeiT(TimmSource):
    """Distilled DeiTs, with a second token and a second head."""

    builder = "DistilledVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return "patch_embed.proj.weight" in names and "dist_token" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        vit = timm_vit.describe_vit(shapes, config)
        rows, patch = shapes.of("pos_embed", 3)[1], vit.numbers["patch_size"]
        return replace(
            vit,
            builder=self.builder,
            arguments={key: vit.arguments[key] for key in _SHARED},
            grid=TokenGrid("pos_embed", rows, patch, prefix=2),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            *timm_vit.transformer(),
            ("dist_token", "distillation_token/tokens"),
            *torch_dense("head_dist", "head_distillation"),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        return differing(record["kwargs"], timm_vit.NUMERICS)

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        base = timm_vit.transformer_config(kwargs)
        return {
            "architecture": "deit_base_distilled_patch16_224",
            **base,
            "pretrained_cfg": cfg("patch_embed.proj", ["head", "head_dist"]),
        }
