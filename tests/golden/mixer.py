"""Maps the activations of MLP-Mixer's original code to layers."""

import re

import numpy as np

from kerasvit.models import MLPMixer

from .family import Family
from .vit import nothing


def _layout(model, quantity, array):
    if quantity != "stem":
        return array
    height, width = model.record["kwargs"]["image_size"]  # NHWC there, tokens here
    patch = model.record["kwargs"]["patch_size"]
    return np.reshape(array, (len(array), height // patch, width // patch, -1))


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("head").input
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    number = re.fullmatch(r"(?:block|hook/blocks\.)(\d+)", quantity)
    if number is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    return model.get_layer(f"mixer_block_{number[1]}").output


LAYERS = {
    "stem": "stem",
    "hook/stem": "stem",
    "encoded": "pre_head_norm",
    "features": "pre_head_norm",
}


FAMILIES = {
    kind: Family(MLPMixer, nothing, _tap, _layout)
    for kind in ("vit_jax_mixer_npz", "timm_mixer")
}
