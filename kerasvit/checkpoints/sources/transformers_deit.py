"""Hugging Face transformers' distilled DeiTs.

Names as `DeiTForImageClassificationWithTeacher` writes them, and `DeiTModel` without
the leading "deit."; transformers/models/deit/modeling_deit.py. Plain DeiTs are ViTs
there, and `DeiTForImageClassification` is read as one.
"""

from ..key_map import KeyMap, torch_dense
from . import transformers
from .transformers import KERNEL as KERNEL
from .transformers import ORIGIN as ORIGIN
from .transformers import image_size as image_size
from .transformers import label_names as label_names
from .transformers import left_open as left_open
from .transformers import sizes as sizes

BUILDERS = ("DistilledVisionTransformer",)

_SHARED = ("qkv_bias", "layer_scale", "activation", "epsilon")


def recognises(names) -> bool:
    """Whether the names are transformers', of a distilled model."""
    return "embeddings.distillation_token" in names


def own_name(name):
    """The name without the model it sits in."""
    return name.removeprefix("deit.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.startswith("pooler."):
        return "pooler, of the class token alone, which no classifier uses"
    return None


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and `config.json`."""
    changes = transformers.builder_changes(shapes, config)
    return {
        "num_classes": shapes.get("cls_classifier.weight", (0,))[0],
        **{key: changes[key] for key in _SHARED},
    }


def cells(shapes, kwargs):
    """(name of the position table, patches it covers, pixels a patch)."""
    name = "embeddings.position_embeddings"
    return name, shapes[name][1] - 2, kwargs["patch_size"]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    return KeyMap(
        *transformers.encoder(),
        ("embeddings.distillation_token", "distillation_token/tokens"),
        *torch_dense("cls_classifier", "head"),
        *torch_dense("distillation_classifier", "head_distillation"),
    )
