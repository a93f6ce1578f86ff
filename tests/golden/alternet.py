"""Maps the activations of AlterNet's original code to layers."""

import re

import numpy as np

from kerasvit.models import AlterNet

from .family import Family


def _config_arguments(config):
    # A state dict has only their product.
    heads = config.get("heads", (3, 6, 12, 24)[: len(config["num_blocks"])])
    return {"num_heads": heads, "head_width": config.get("dim_head", 64)}


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("head").input
    found = re.fullmatch(r"(?:hook/)?layer(\d+)(?:\.(\d+))?", quantity)
    if found is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    stage, unit = int(found[1]) - 1, found[2]
    if stage < 0:
        pooled = model.record["kwargs"]["stem"] == "imagenet"
        return model.get_layer("stem_pool" if pooled else "stem").output
    if unit is None:
        unit = model.record["kwargs"]["depths"][stage] - 1
    return model.get_layer(f"stage_{stage}_unit_{unit}").output


def _layout(model, quantity, array):
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array  # NCHW there


FAMILIES = {
    "alternet": Family(AlterNet, _config_arguments, _tap, _layout, tolerance=1e-4)
}
