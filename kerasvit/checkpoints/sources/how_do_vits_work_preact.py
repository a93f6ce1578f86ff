"""Pre-activation ResNets of xxxnell/how-do-vits-work, models/preresnet.py.

Those with dropout or smoothing have the same tensors, and are not told apart.
"""

from ..key_map import KeyMap
from .how_do_vits_work import KERNEL as KERNEL
from .how_do_vits_work import ORIGIN as ORIGIN
from .how_do_vits_work import cells as cells
from .how_do_vits_work import changes_of, conv_units, ends, recognises_with, sizes_of
from .how_do_vits_work import dropped as dropped
from .how_do_vits_work import image_size as image_size
from .how_do_vits_work import label_names as label_names
from .how_do_vits_work import own_name as own_name

BUILDERS = ("PreActResNet",)

_STEM = "layer0.0.weight"


def recognises(names) -> bool:
    """Whether the names are a pre-activation ResNet's."""
    return recognises_with(names, _STEM)


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    return sizes_of(shapes, _STEM)


def builder_changes(shapes, config):
    """What the weights were made with."""
    return changes_of(shapes, _STEM)


def left_open(shapes, config):
    """What the tensors do not tell, as in `timm_vit`."""
    return (), ("no smoothing of the feature maps",)


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    stages = range(len(kwargs["depths"]))
    rules = [
        rule
        for i in stages
        for rule in conv_units(f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/")
    ]
    return KeyMap(*ends(_STEM), *rules)
