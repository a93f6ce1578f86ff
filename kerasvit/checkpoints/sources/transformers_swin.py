"""Hugging Face transformers' Swin Transformers.

Names as `SwinForImageClassification` writes them, and `SwinModel` without the leading
"swin."; transformers/models/swin/modeling_swin.py.
"""

from ..key_map import KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .count import count
from .timm_swin import BUILDERS as BUILDERS
from .timm_swin import KERNEL as KERNEL  # transformers resamples no table
from .timm_swin import cells as cells
from .timm_swin import merging
from .transformers import GELU, block, check, patches
from .transformers import ORIGIN as ORIGIN
from .transformers import image_size as image_size
from .transformers import label_names as label_names

_PATCHES = "embeddings.patch_embeddings.projection.weight"
_BLOCK = "encoder.layers.{i}.blocks.{j}."
_TABLE = "encoder.layers.{}.blocks.0.attention.self.relative_position_bias_table"


def recognises(names) -> bool:
    """Whether the names are transformers', of a Swin."""
    return _PATCHES in names and _TABLE.format(0) in names


def own_name(name):
    """The name without the model it sits in."""
    return name.removeprefix("swin.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.endswith(".relative_position_index"):
        return "computed from the window size; older files hold it too"
    if name == "embeddings.mask_token" or name.startswith("decoder."):
        return "of SwinForMaskedImageModeling, which paints what a mask hides"
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    stages = count(shapes, _TABLE)
    norm = _BLOCK + "layernorm_before.weight"
    return {
        "width": shapes[_PATCHES][0],
        "depths": [count(shapes, norm.format(i=i, j="{}")) for i in range(stages)],
        "num_heads": [shapes[_TABLE.format(i)][1] for i in range(stages)],
    }


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and `config.json`."""
    numbers, patch = sizes(shapes, config), shapes[_PATCHES][-1]
    last, rows = len(numbers["depths"]) - 1, shapes[_TABLE.format(0)][0]
    window = (round(rows**0.5) + 1) // 2  # of M × M, with (2M - 1)² offsets
    first = _BLOCK.format(i=last, j=0)
    hidden, channels = shapes[first + "intermediate.dense.weight"]
    changes = {
        "patch_size": patch,
        "window_size": window,
        # In all published models the last map is one window.
        "image_size": [window * patch * 2**last] * 2,
        "num_classes": shapes.get("classifier.weight", (0,))[0],
        # From the last stage, where rounding down to whole units matters least.
        "mlp_ratio": hidden / channels,
        "qkv_bias": first + "attention.self.query.bias" in shapes,
        "epsilon": 1e-5,
    }
    built = {
        "embed_dim": numbers["width"],
        "depths": numbers["depths"],
        "num_heads": numbers["num_heads"],
        "window_size": window,
        "qkv_bias": changes["qkv_bias"],
        "use_absolute_embeddings": False,
        "hidden_act": GELU,
        # That of the patches' and mergings' normalisations, which no key changes.
        "layer_norm_eps": 1e-5,
    }
    check(config, built)
    _check_shifts(image_size(config), changes["image_size"][0])
    return changes


def left_open(shapes, config):
    """What neither the tensors nor the configuration tell, as in `timm_vit`."""
    known = config.get("model_type") or "hidden_act" in config
    return (), () if known else ("the exact GELU",)


def _check_shifts(size, pixels):
    """Raises for an image whose last map is one window high or wide, and not both.

    transformers shifts no window there; here those along the longer side are.
    """
    if size and size[0] != size[1] and min(size) <= pixels:
        raise CheckpointError(
            f"config.json asks for images of {size[0]} × {size[1]}. Built here, as in "
            "transformers, are squares, and images whose sides are both longer than "
            f"{pixels}."
        )


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    ours = "stage_{i}_block_{j}/"
    merged = [
        rule
        for i in range(1, len(kwargs["depths"]))
        for rule in merging(f"encoder.layers.{i - 1}.downsample", f"stage_{i}_merging")
    ]
    return KeyMap(
        *patches(),
        *torch_norm("embeddings.norm", "embedding_norm"),
        *merged,
        *block(_BLOCK, ours, "attention.self."),
        (
            _BLOCK + "attention.self.relative_position_bias_table",
            ours + "attention/position_bias",
        ),
        *torch_norm("layernorm", "encoder_norm"),
        *torch_dense("classifier", "head"),
    )
