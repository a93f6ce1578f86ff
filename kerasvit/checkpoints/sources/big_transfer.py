"""Google's BiT `.npz` files: google-research/big_transfer.

Names as bit_pytorch/models.py reads them: stages and units count from 1, units in two
digits. Some files number the convolutions, as TensorFlow did when it made them.
"""

import re

from ..key_map import FLAX_POINTWISE, KeyMap
from .google import image_size as image_size
from .google import label_names as label_names

ORIGIN = "big_transfer"
BUILDERS = ("BigTransfer",)
KERNEL = "bilinear"  # of no account: no tensor depends on the image size

_ROOT = "resnet/root_block/standardized_conv2d/kernel"
_UNIT = "resnet/block{}/unit{:02d}/"


def recognises(names) -> bool:
    """Whether the names are big_transfer's."""
    return _ROOT in names


def own_name(name):
    """The name without the number that some files give a convolution."""
    return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    return {"depths": _depths(shapes), "width_factor": shapes[_ROOT][-1] / 64}


def builder_changes(shapes, config):
    """What the weights were made with, from the keys present."""
    kernel = "c/standardized_conv2d/kernel"
    widths = [
        shapes[_UNIT.format(i + 1, 1) + kernel][-1] for i in range(len(_depths(shapes)))
    ]
    return {
        "num_classes": shapes.get("resnet/head/conv2d/kernel", (0,))[-1],
        "stage_widths": unless_standard(widths, shapes[_ROOT][-1]),
        "conv_epsilon": 1e-10,
        "epsilon": 1e-5,
    }


def unless_standard(widths, root):
    """The stages' output channels, None where they follow from the root's."""
    standard = [4 * root * 2**i for i in range(len(widths))]
    return None if widths == standard else widths


def cells(shapes, kwargs):
    """No tensor depends on the image size."""
    return None


def _depths(shapes):
    def count(pattern):
        names = (pattern(i) + "a/group_norm/gamma" for i in range(1, len(shapes) + 2))
        return next(i for i, name in enumerate(names) if name not in shapes)

    stages = count(lambda i: _UNIT.format(i, 1))
    return [count(lambda j, i=i: _UNIT.format(i + 1, j)) for i in range(stages)]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    head, conv = "resnet/head/conv2d/", "standardized_conv2d/kernel"
    rules = [(_ROOT, "root_conv/kernel")]
    for i, depth in enumerate(kwargs["depths"]):
        for j in range(depth):
            unit, ours = _UNIT.format(i + 1, j + 1), f"stage_{i}_unit_{j}/"
            rules.append((f"{unit}a/proj/{conv}", f"{ours}projection/kernel"))
            for k, part in enumerate("abc"):
                rules.append((f"{unit}{part}/{conv}", f"{ours}conv_{k}/kernel"))
                rules += _norm(f"{unit}{part}/group_norm", f"{ours}norm_{k}")
    return KeyMap(
        *rules,
        *_norm("resnet/group_norm", "final_norm"),
        (head + "kernel", "head/kernel", FLAX_POINTWISE),
        (head + "bias", "head/bias"),
    )


def _norm(name, path):
    return [(f"{name}/{part}", f"{path}/{part}") for part in ("gamma", "beta")]
