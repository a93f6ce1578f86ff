"""Hugging Face transformers' distilled DeiTs.

Names as `DeiTForImageClassificationWithTeacher` writes them, and `DeiTModel` without
the leading "deit."; transformers/models/deit/modeling_deit.py. Plain DeiTs are ViTs
there, and `DeiTForImageClassification` is read as one.
"""

from dataclasses import replace

from ..description import TokenGrid
from ..key_map import KeyMap, torch_dense
from . import transformers
from .transformers import TABLE, TransformersSource

_SHARED = ("qkv_bias", "layer_scale", "activation", "epsilon")


class TransformersDeiT(TransformersSource):
    """Distilled DeiTs, with a second token and a second head."""

    builder = "DistilledVisionTransformer"

    def recognises(self, names):
        return "embeddings.distillation_token" in names

    def describe(self, shapes, config):
        vit = transformers.described(shapes, config)
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

    def key_map(self, kwargs, shapes=None):
        return KeyMap(
            *transformers.encoder(),
            ("embeddings.distillation_token", "distillation_token/tokens"),
            *torch_dense("cls_classifier", "head"),
            *torch_dense("distillation_classifier", "head_distillation"),
        )

    def short_name(self, name):
        return name.removeprefix("deit.")

    def dropped(self, name, names):
        if name.startswith("pooler."):
            return "pooler, of the class token alone, which no classifier uses"
        return None
