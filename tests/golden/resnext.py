"""Maps the activations of ResNeXt's original code to layers."""

import re

import numpy as np

from kerasvit.models import ResNeXt

from .family import Family
from .vit import nothing

LAYERS = {"hook/act1": "stem_relu", "hook/maxpool": "stem_pool"}
LAYERS |= {"hook/global_pool": "pool", "hook/layer0": "stem_relu"}


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    found = re.fullmatch(r"hook/layer(\d+)\.(\d+)", quantity)
    if found is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    return model.get_layer(f"stage_{int(found[1]) - 1}_unit_{found[2]}").output


def _layout(model, quantity, array):
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array  # NCHW there


FAMILIES = {
    kind: Family(ResNeXt, nothing, _tap, _layout)
    for kind in ("resnext", "timm_resnext")
}
