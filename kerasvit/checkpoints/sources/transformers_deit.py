"""Hugging Face transformers' distilled DeiTs.

Tensor names as `DeiTForImageClassificationWithTeacher` and `DeiTModel` write them, the
latter without the prefix "deit."; transformers/models/deit/modeling_deit.py.
`TransformersViT` reads plain DeiTs and `DeiTForImageClassification`.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Any

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, torch_dense
from . import transformers
from .transformers import TABLE, TransformersSource

_SHARED = ("channels", "qkv_bias", "layer_scale", "activation", "epsilon")


class TransformersDeiT(TransformersSource):
    """Distilled DeiTs, with a second token and a second head."""

    builder = "DistilledVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return "embeddings.distillation_token" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        vit = transformers.describe_vit(shapes, config)
        rows, patch = shapes.of(TABLE, 3)[1], vit.numbers["patch_size"]
        classes = shapes.side("cls_classifier.weight", 0, 2, default=0)
        return replace(
            vit,
            builder=self.builder,
            arguments={
                "num_classes": classes,
                **{key: vit.arguments[key] for key in _SHARED},
            },
            grid=TokenGrid(TABLE, rows, patch, prefix=2),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            *transformers.encoder(),
            ("embeddings.distillation_token", "distillation_token/tokens"),
            *torch_dense("cls_classifier", "head"),
            *torch_dense("distillation_classifier", "head_distillation"),
        )

    def short_name(self, name: str) -> str:
        return transformers.former_name(name.removeprefix("deit."))

    def module_map(self, record: dict[str, Any]) -> KeyMap | None:
        kwargs = record["kwargs"]
        return transformers.in_memory(self.key_map(kwargs), kwargs, "deit.")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.startswith("pooler."):
            return "pooler of the class token, which no classifier uses"
        return None
