"""Maps the activations of BiT's original code to layers."""

import re

from kerasvit.layers import MaxPool
from kerasvit.models import BigTransfer

from .family import Family
from .vit import nothing

TOLERANCE = 5e-5  # division by the deviation of nearly constant kernels


def _layout(model, quantity, array):
    torch = quantity.startswith("hook/") or quantity == "features"
    return array.transpose(0, 3, 1, 2) if torch else array


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("pool").output
    if quantity == "logits_bigvision_neginf_pool":
        return _logits_of_padding_that_is_left_out(model)
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    if of_google := re.fullmatch(r"block(\d+)_unit(\d+)", quantity):
        stage, unit = (int(number) - 1 for number in of_google.groups())
        return model.get_layer(f"stage_{stage}_unit_{unit}").output
    of_timm = re.fullmatch(r"hook/stages\.(\d+)(?:\.blocks\.(\d+))?", quantity)
    if of_timm is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    stage, unit = of_timm.groups()
    unit = unit or model.record["kwargs"]["depths"][int(stage)] - 1
    return model.get_layer(f"stage_{stage}_unit_{unit}").output


def _logits_of_padding_that_is_left_out(model):
    """The logits of big_vision, whose pooling ignores padding."""
    x = MaxPool()(model.get_layer("root_conv").output)
    rest = model.layers[model.layers.index(model.get_layer("root_pool")) + 1 :]
    for layer in rest:
        x = layer(x)
    return x


LAYERS = {
    "stem": "root_pool",
    "hook/stem": "root_pool",
    "pre_logits_2d": "final_relu",
    "hook/norm": "final_relu",
    "features": "final_relu",
}


FAMILIES = {
    kind: Family(BigTransfer, nothing, _tap, _layout, TOLERANCE)
    for kind in ("bit_npz", "timm_resnetv2_bit", "hf_bit")
}
