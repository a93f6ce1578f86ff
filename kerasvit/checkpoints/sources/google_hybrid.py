"""Google's `.npz` files of hybrids: google-research/vision_transformer.

Flax names, as vit_jax/models_vit.py and vit_jax/models_resnet.py write them. Released
files keep the ResNet's normalisations as (1, 1, 1, C), later ones as (C,).
"""

from ..key_map import KeyMap, reshaped
from . import google_vit
from .big_transfer import unless_standard
from .count import count
from .google import KERNEL as KERNEL
from .google import ORIGIN as ORIGIN
from .google import dropped as dropped
from .google import image_size as image_size
from .google import label_names as label_names
from .google import own_name as own_name

BUILDERS = ("HybridVisionTransformer",)

_SOFT = ("num_classes", "pool", "representation_size", "activation", "epsilon")


def recognises(names) -> bool:
    """Whether the names are Google's, of a Transformer behind a ResNet."""
    return "conv_root/kernel" in names and google_vit.holds_transformer(names)


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    blocks = count(shapes, "block{}/unit1/conv1/kernel", start=1)
    units = [
        count(shapes, f"block{i}/unit{{}}/conv1/kernel", start=1)
        for i in range(1, blocks + 1)
    ]
    return {"resnet_depths": units, **google_vit.sizes(shapes, config)}


def builder_changes(shapes, config):
    """What the weights were made with, from the keys present."""
    changes = google_vit.builder_changes(shapes, config)
    root, last = shapes["conv_root/kernel"][-1], "block{}/unit1/conv3/kernel"
    blocks = count(shapes, last, start=1)
    return {
        **{key: changes[key] for key in _SOFT},
        "width_factor": root / 64,
        "stage_widths": unless_standard(
            [shapes[last.format(i + 1)][-1] for i in range(blocks)], root
        ),
        "group_epsilon": 1e-6,  # flax.linen.GroupNorm's default
        "kernel_epsilon": 1e-5,  # models_resnet.py, StdConv
        "add_to_deviation": True,
    }


def cells(shapes, kwargs):
    """(name of the position table, cells it covers, pixels a cell)."""
    tokens = {**kwargs, "class_token": kwargs["pool"] == "token"}
    name, covered, patch = google_vit.cells(shapes, tokens)
    return name, covered, patch * stride(kwargs)


def stride(kwargs):
    """Pixels a cell of the ResNet's map."""
    return 4 * 2 ** max(len(kwargs["resnet_depths"]) - 1, 0)


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`, in the spelling of `shapes`."""
    shapes = shapes or {}
    flat = len(shapes.get("gn_root/scale", "NHWC")) == 1
    vector = reshaped((-1,) if flat else (1, 1, 1, -1))
    resnet = [*_pair("conv_root", "gn_root", "root_conv", "root_norm", vector)]
    for i, units in enumerate(kwargs["resnet_depths"]):
        for j in range(units):
            unit, ours = f"block{i + 1}/unit{j + 1}/", f"stage_{i}_unit_{j}/"
            for k in range(3):
                resnet += _pair(
                    f"{unit}conv{k + 1}",
                    f"{unit}gn{k + 1}",
                    f"{ours}conv_{k}",
                    f"{ours}norm_{k}",
                    vector,
                )
            resnet += _pair(
                unit + "conv_proj",
                unit + "gn_proj",
                ours + "projection",
                ours + "projection_norm",
                vector,
            )
    transformer = google_vit.rules({**kwargs, "positions": "tokens"}, shapes)
    return KeyMap(*resnet, *transformer)


def _pair(conv, norm, our_conv, our_norm, vector):
    """Rules of a convolution and the normalisation behind it."""
    yield f"{conv}/kernel", f"{our_conv}/kernel"
    yield f"{norm}/scale", f"{our_norm}/gamma", vector
    yield f"{norm}/bias", f"{our_norm}/beta", vector
