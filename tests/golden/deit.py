"""Maps the activations of timm's distilled DeiT to layers."""

import re

from kerasvit.models import DistilledVisionTransformer

from .family import Family
from .vit import heads_of_timm

LAYERS = {
    "hook/patch_embed": "embedding",
    "features": "encoder_norm",
    "logits_cls": "head",
    "logits_dist": "head_distillation",
    "logits": "average",
}


def _tap(model, quantity):
    if quantity == "prelogits":
        tokens = model.get_layer("encoder_norm").output
        return (tokens[:, 0] + tokens[:, 1]) / 2
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    number = re.fullmatch(r"hook/blocks\.(\d+)", quantity)
    if number is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    return model.get_layer(f"encoder_block_{number[1]}").output


FAMILIES = {
    "timm_deit_distilled": Family(DistilledVisionTransformer, heads_of_timm, _tap),
}
