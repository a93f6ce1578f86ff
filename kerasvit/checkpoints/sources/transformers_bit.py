"""Hugging Face transformers' BiTs.

Names as `BitForImageClassification` writes them, and `BitModel` without the leading
"bit."; transformers/models/bit/modeling_bit.py. Its other kind of layers, "bottleneck",
is that of the hybrids' ResNets.
"""

from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .big_transfer import unless_standard
from .timm_bit import BUILDERS as BUILDERS
from .timm_bit import KERNEL as KERNEL
from .timm_bit import cells as cells
from .timm_bit import stages, unit_rules
from .transformers import ORIGIN as ORIGIN
from .transformers import check
from .transformers import image_size as image_size
from .transformers import label_names as label_names

_ROOT = "embedder.convolution.weight"
_UNIT = "encoder.stages.{i}.layers.{j}."


def recognises(names) -> bool:
    """Whether the names are transformers', of a BiT."""
    return {_ROOT, _UNIT.format(i=0, j=0) + "conv3.weight"} <= names


def own_name(name):
    """The name without the model it sits in."""
    return name.removeprefix("bit.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    depths = [len(widths) for widths in stages(shapes, _UNIT)]
    return {"depths": depths, "width_factor": shapes[_ROOT][0] / 64}


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and `config.json`."""
    units, root = stages(shapes, _UNIT), shapes[_ROOT][0]
    widths = [stage[0] for stage in units]
    built = {
        "embedding_size": root,
        "hidden_sizes": widths,
        "depths": [len(stage) for stage in units],
        "width_factor": 1,  # with another one transformers' own model does not run
        "layer_type": "preactivation",
        "hidden_act": "relu",
        "num_groups": 32,
        "global_padding": None,
        "embedding_dynamic_padding": False,
    }
    check(config, built)
    stride = config.get("output_stride", 32)
    if stride <= 2 ** len(units):  # before the last stage it is that
        raise CheckpointError(
            f"config.json asks for output_stride={stride}, which leaves stages as "
            f"large as those before them. Built here is {2 ** (len(units) + 1)}, with "
            "all stages but the first halved."
        )
    return {
        "num_classes": shapes.get("classifier.1.weight", (0,))[0],
        "stage_widths": unless_standard(widths, root),
        "conv_epsilon": 1e-8,  # `eps` of every WeightStandardizedConv2d
        "epsilon": 1e-5,  # BitGroupNormActivation's default
    }


def left_open(shapes, config):
    """What neither the tensors nor the configuration tell, as in `timm_vit`."""
    usual = "ReLU, 32 groups, an output_stride of 32 and no global_padding"
    return (), () if config.get("model_type") else (usual,)


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    return KeyMap(
        (_ROOT, "root_conv/kernel", CONVOLUTION),
        *unit_rules(_UNIT),
        *torch_norm("norm", "final_norm"),
        *torch_dense("classifier.1", "head"),
    )
