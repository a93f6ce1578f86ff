"""Maps the activations of the hybrids' original code to layers."""

import re

import keras
import numpy as np

from kerasvit.models import HybridVisionTransformer

from . import vit
from .family import Family


def _layout(model, quantity, array):
    if quantity == "embedding":  # NHWC there, tokens here
        grid = model.get_layer("position_embedding").grid
        return np.reshape(array, (len(array), *grid, -1))
    if quantity.startswith("hook/patch_embed.backbone"):  # NCHW
        return array.transpose(0, 3, 1, 2)
    return array


def _tap(model, quantity):
    name = quantity.removeprefix("hook/patch_embed.backbone")
    name = name.removeprefix("resnet").lstrip("./")
    if quantity.startswith(("resnet", "hook/patch_embed.backbone")):
        return _inside_resnet(model, name)
    return vit.FAMILIES["vit_jax_npz"].tap(model, quantity)


def _inside_resnet(model, name):
    if name.endswith("/param"):
        kernel = model.get_layer(ROOT[name.split("/")[0]]).standardized_kernel()
        return keras.ops.convert_to_numpy(kernel)
    if name in ROOT:
        return model.get_layer(ROOT[name]).output
    depths = model.record["kwargs"]["resnet_depths"]
    # Google counts from one, timm from zero; no unit: the stage's last.
    google = re.fullmatch(r"block(\d+)(?:/unit(\d+))?", name)
    timm = re.fullmatch(r"stages\.(\d+)(?:\.blocks\.(\d+))?", name)
    if google or timm:
        stage, unit = (google or timm).groups()
        stage = int(stage) - bool(google)
        unit = depths[stage] - 1 if unit is None else int(unit) - bool(google)
    elif not name and depths:
        stage, unit = len(depths) - 1, depths[-1] - 1
    elif not name:
        return model.get_layer("root_pool").output
    else:
        raise ValueError(f"{name} is no part of the ResNet that this check knows.")
    return model.get_layer(f"stage_{stage}_unit_{unit}").output


ROOT = {
    "conv_root": "root_conv",
    "gn_root": "root_norm",
    "stem": "root_pool",
    "stem.conv": "root_conv",
    "stem.norm": "root_relu",  # timm's activates
    "stem.pool": "root_pool",
    "conv": "root_conv",
    "norm": "root_relu",
    "pool": "root_pool",
}


FAMILIES = {
    kind: Family(HybridVisionTransformer, arguments, _tap, _layout, tolerance=5e-5)
    for kind, arguments in {
        "vit_jax_hybrid_npz": vit.nothing,
        "timm_vit_hybrid": vit.heads_of_timm,
    }.items()
}
