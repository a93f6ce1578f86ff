"""timm's distilled DeiTs; DeiT and DeiT III themselves are timm's ViTs.

Names as `VisionTransformerDistilled` of timm/models/deit.py writes them, and the
authors' code, facebookresearch/deit, too.
"""

from ..key_map import KeyMap, torch_dense
from . import timm_vit
from .timm import KERNEL as KERNEL
from .timm import ORIGIN as ORIGIN
from .timm import dropped as dropped
from .timm import ends, unlike
from .timm import image_size as image_size
from .timm import label_names as label_names
from .timm import own_name as own_name
from .timm_vit import left_open as left_open
from .timm_vit import sizes as sizes

BUILDERS = ("DistilledVisionTransformer",)

_SHARED = ("num_classes", "qkv_bias", "layer_scale", "activation", "epsilon")


def recognises(names) -> bool:
    """Whether the names are timm's, of a distilled model."""
    return "patch_embed.proj.weight" in names and "dist_token" in names


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and timm's `config.json`."""
    changes = timm_vit.builder_changes(shapes, config)
    return {key: changes[key] for key in _SHARED}


def cells(shapes, kwargs):
    """(name of the position table, patches it covers, pixels a patch)."""
    return "pos_embed", shapes["pos_embed"][1] - 2, kwargs["patch_size"]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    return KeyMap(
        *timm_vit.transformer(),
        ("dist_token", "distillation_token/tokens"),
        *torch_dense("head_dist", "head_distillation"),
    )


def differs(record):
    """In words, what timm's distilled DeiTs do not have, or None."""
    return unlike(record["kwargs"], timm_vit.NUMERICS)


def config(record):
    """timm's `config.json` for one of our models, or None where timm has no such."""
    if differs(record):
        return None
    base = timm_vit.transformer_config(record["kwargs"])
    return {
        "architecture": "deit_base_distilled_patch16_224",
        **base,
        "pretrained_cfg": ends("patch_embed.proj", ["head", "head_dist"]),
    }
