"""timm's hybrids of a ResNet with group normalisation and a Vision Transformer.

Names and layouts as timm/models/vision_transformer_hybrid.py and resnetv2.py write
them; not those of timm's other backbones.
"""

from ..key_map import CONVOLUTION, KeyMap, torch_norm
from ..reader import CheckpointError
from . import timm_vit
from .big_transfer import unless_standard
from .count import count
from .google_hybrid import stride
from .timm import KERNEL as KERNEL
from .timm import ORIGIN as ORIGIN
from .timm import dropped as dropped
from .timm import ends, unlike
from .timm import image_size as image_size
from .timm import label_names as label_names
from .timm import own_name as own_name
from .timm_vit import left_open as left_open

BUILDERS = ("HybridVisionTransformer",)

_BACKBONE = "patch_embed.backbone."
_SOFT = ("num_classes", "pool", "representation_size", "activation", "epsilon")

# Which of timm's models has a ResNet of these stages: the only numbers that
# `model_args` cannot give.
_ARCHITECTURES = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


def recognises(names) -> bool:
    """Whether the names are timm's, of a Transformer behind such a ResNet."""
    roots = (_BACKBONE + "stem.norm.weight", _BACKBONE + "norm.weight")
    return "blocks.0.norm1.weight" in names and any(root in names for root in roots)


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    stages = _BACKBONE + "stages.{}.blocks.0.conv1.weight"
    units = [
        count(shapes, f"{_BACKBONE}stages.{i}.blocks.{{}}.conv1.weight")
        for i in range(count(shapes, stages))
    ]
    return {"resnet_depths": units, **timm_vit.sizes(shapes, config)}


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and timm's `config.json`."""
    changes = timm_vit.builder_changes(shapes, config)
    if "reg_token" in shapes:
        raise CheckpointError(
            "The file has register tokens (timm's reg_tokens). Built of hybrids are "
            "models without."
        )
    if changes["class_token"] and changes.get("positions") == "patches":
        raise CheckpointError(
            "The configuration says that the class token has no row in the position "
            "table (timm's no_embed_class=True). Built of hybrids are tables with one."
        )
    built = ("token", True) if changes["pool"] == "token" else ("average", False)
    if (changes["pool"], changes["class_token"]) != built:
        raise CheckpointError(
            f"The file pools by {changes['pool']!r}, class token "
            f"{changes['class_token']}. Built of hybrids are the class token, and the "
            "average of the normalised patches without one."
        )
    units = sizes(shapes, config)["resnet_depths"]
    stem = _stem(not units)
    last = _BACKBONE + "stages.{}.blocks.0.conv3.weight"
    root = shapes[stem + "conv.weight"][0]
    return {
        **{key: changes[key] for key in _SOFT},
        "width_factor": root / 64,
        "stage_widths": unless_standard(
            [shapes[last.format(i)][0] for i in range(len(units))], root
        ),
        "group_epsilon": 1e-5,  # layers/norm_act.py, GroupNormAct
        "kernel_epsilon": 1e-8,  # StdConv2dSame, as _resnetv2 has it
        "add_to_deviation": False,
    }


def cells(shapes, kwargs):
    """(name of the position table, cells it covers, pixels a cell)."""
    rows = shapes["pos_embed"][1] - (kwargs["pool"] == "token")
    return "pos_embed", rows, kwargs["patch_size"] * stride(kwargs)


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    stem = _stem(not kwargs["resnet_depths"])
    unit, ours = _BACKBONE + "stages.{i}.blocks.{j}.", "stage_{i}_unit_{j}/"
    resnet = [
        (stem + "conv.weight", "root_conv/kernel", CONVOLUTION),
        *torch_norm(stem + "norm", "root_norm"),
        (unit + "downsample.conv.weight", ours + "projection/kernel", CONVOLUTION),
        *torch_norm(unit + "downsample.norm", ours + "projection_norm"),
    ]
    for k in range(3):
        conv = f"{unit}conv{k + 1}.weight"
        resnet.append((conv, f"{ours}conv_{k}/kernel", CONVOLUTION))
        resnet += torch_norm(f"{unit}norm{k + 1}", f"{ours}norm_{k}")
    return KeyMap(*resnet, *timm_vit.transformer("norm"))


def _stem(alone):
    return _BACKBONE if alone else _BACKBONE + "stem."


def differs(record):
    """In words, what timm's hybrids do not have, or None.

    Their ResNets have the width of the paper's, four choices of stages, and epsilons
    1e-5 and 1e-8, the latter added to the variance.
    """
    known = {
        "resnet_depths": [list(depths) for depths in _ARCHITECTURES],
        "width_factor": [1],
        "stage_widths": [None],
        "group_epsilon": [1e-5],
        "kernel_epsilon": [1e-8],
        "add_to_deviation": [False],
        "representation_size": [None],
    }
    return unlike(record["kwargs"], {**timm_vit.NUMERICS, **known})


def config(record):
    """timm's `config.json` for one of our models, or None where timm has no such."""
    if differs(record):
        return None
    kwargs = record["kwargs"]
    base = timm_vit.transformer_config(
        {**kwargs, "qkv_bias": True, "layer_scale": None}
    )
    name = _ARCHITECTURES[tuple(kwargs["resnet_depths"])]
    token = kwargs["pool"] == "token"
    pool = "token" if token else "avg"
    stem = "stem." if kwargs["resnet_depths"] else ""
    pooling = {"global_pool": pool, "class_token": token, "fc_norm": False}
    return {
        "architecture": name,
        **base,
        "pretrained_cfg": ends(f"{_BACKBONE}{stem}conv", "head"),
        "global_pool": pool,
        "model_args": {**base["model_args"], **pooling},
    }
