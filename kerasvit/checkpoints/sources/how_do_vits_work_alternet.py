"""AlterNets of xxxnell/how-do-vits-work, models/alternet.py."""

import numpy as np

from ..key_map import CONVOLUTION, TORCH_POINTWISE, KeyMap, Transform
from ..reader import CheckpointError
from .how_do_vits_work import KERNEL as KERNEL
from .how_do_vits_work import ORIGIN as ORIGIN
from .how_do_vits_work import (
    batch_norm,
    changes_of,
    conv_units,
    ends,
    recognises_with,
    sizes_of,
    stages,
)
from .how_do_vits_work import cells as cells
from .how_do_vits_work import dropped as dropped
from .how_do_vits_work import image_size as image_size
from .how_do_vits_work import label_names as label_names
from .how_do_vits_work import own_name as own_name

BUILDERS = ("AlterNet",)

_STEM = "layer0.layer0.0.weight"
_TABLE = "attn.pos_embedding"

# One 1 × 1 convolution makes keys and values: (2 · inner, in, 1, 1).
_KEY_VALUE = Transform(
    lambda a: [part[:, :, 0, 0].T for part in np.split(a, 2)],
    lambda arrays: np.concatenate([a.T for a in arrays])[:, :, None, None],
)


def recognises(names) -> bool:
    """Whether the names are an AlterNet's."""
    return recognises_with(names, _STEM)


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    attending = [
        sum(unit + _TABLE in shapes for unit in units) for units in stages(shapes)
    ]
    return {**sizes_of(shapes, _STEM), "attention_depths": attending}


def builder_changes(shapes, config):
    """What the weights were made with; heads are not told apart by the tensors."""
    changes = changes_of(shapes, _STEM)
    tables = [shape for name, shape in shapes.items() if name.endswith(_TABLE)]
    if tables:
        changes["window_size"] = (tables[0][0] + 1) // 2
    return changes


def left_open(shapes, config):
    """As in `timm_vit`; of `num_heads` and `head_width` tensors tell the product."""
    attends = any(name.endswith(_TABLE) for name in shapes)
    return (("num_heads", "head_width") if attends else ()), ()


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    _check_heads(kwargs, shapes or {})
    rules = []
    for i in range(len(kwargs["depths"])):
        theirs, ours = f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/"
        rules += conv_units(theirs, ours)
        rules += _attention_units(theirs, ours)
    return KeyMap(*ends(_STEM), *rules)


def _check_heads(kwargs, shapes):
    """Raises a `CheckpointError` where the tensors are of other heads, together."""
    for name, shape in shapes.items():
        if name.endswith("attn.attn.to_q.weight"):
            heads = kwargs["num_heads"][int(name.split(".")[0][-1]) - 1]
            if shape[0] != heads * kwargs["head_width"]:
                raise CheckpointError(
                    f"{name} has {shape[0]} rows, which are not {heads} heads of "
                    f"{kwargs['head_width']}. The tensors tell the product only: give "
                    "`num_heads`, of each stage, and `head_width`."
                )


def _attention_units(theirs, ours):
    inside, projection = theirs + "attn.attn.", ours + "attention/output/"
    return (
        *batch_norm(theirs + "norm1", ours + "conv_norm"),
        (theirs + "conv.weight", ours + "conv/kernel", CONVOLUTION),
        *batch_norm(theirs + "norm2", ours + "attention_norm"),
        (theirs + _TABLE, ours + "attention/position_bias"),
        (inside + "to_q.weight", ours + "attention/query/kernel", TORCH_POINTWISE),
        (
            inside + "to_kv.weight",
            (ours + "attention/key/kernel", ours + "attention/value/kernel"),
            _KEY_VALUE,
        ),
        (inside + "to_out.0.weight", projection + "kernel", TORCH_POINTWISE),
        (inside + "to_out.0.bias", projection + "bias"),
    )
