"""Maps the activations of timm's PiTs to layers."""

import re

import numpy as np

from kerasvit.models import PoolingVisionTransformer

from .family import Family

LAYERS = {
    "hook/patch_embed": "embedding",
    "hook/norm": "encoder_norm",
    "hook/head": "head",
    "hook/head_dist": "head_distillation",
}


def _config_arguments(config):
    return {"num_heads": config["heads"]}


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    found = re.fullmatch(
        r"hook/transformers\.(\d+)\.(?:blocks\.(\d+)|pool\.conv)", quantity
    )
    if found is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    stage, block = found.groups()
    if block is None:
        return model.get_layer(f"stage_{stage}_pooling").output[1]
    return model.get_layer(f"stage_{stage}_block_{block}").output


def _layout(model, quantity, array):
    of_map = quantity.endswith(("embed", "conv"))
    return np.moveaxis(array, -1, 1) if of_map else array


FAMILIES = {
    "timm_pit": Family(PoolingVisionTransformer, _config_arguments, _tap, _layout)
}
