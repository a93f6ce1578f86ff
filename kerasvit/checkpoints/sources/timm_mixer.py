"""timm's MLP-Mixers.

Names and layouts as timm/models/mlp_mixer.py writes them.
"""

from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .count import count
from .timm import KERNEL as KERNEL
from .timm import ORIGIN as ORIGIN
from .timm import dropped as dropped
from .timm import ends, model_args, ratio, unlike
from .timm import image_size as image_size
from .timm import label_names as label_names
from .timm import own_name as own_name

BUILDERS = ("MLPMixer",)

_TOKENS = "blocks.0.mlp_tokens.fc1.weight"
_CHANNELS = "blocks.0.mlp_channels.fc1.weight"
_NAMES = {  # (patch size, depth, width), which timm takes from the name alone
    (32, 8, 512): "mixer_s32_224",
    (16, 8, 512): "mixer_s16_224",
    (32, 12, 768): "mixer_b32_224",
    (16, 12, 768): "mixer_b16_224",
    (32, 24, 1024): "mixer_l32_224",
    (16, 24, 1024): "mixer_l16_224",
}


def recognises(names) -> bool:
    """Whether the names are timm's."""
    return "stem.proj.weight" in names and _TOKENS in names


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    width, _, patch, _ = shapes["stem.proj.weight"]
    tokens_mlp_dim = shapes[_TOKENS][0]
    if shapes["blocks.0.mlp_tokens.fc2.weight"][1] != tokens_mlp_dim:
        raise CheckpointError(
            "The file holds a gMixer of timm, an MLP-Mixer with gates. Built here is "
            "the MLP-Mixer without, timm's mixer_*."
        )
    return {
        "patch_size": patch,
        "width": width,
        "depth": count(shapes, "blocks.{}.norm1.weight"),
        "tokens_mlp_dim": tokens_mlp_dim,
        "channels_mlp_dim": shapes[_CHANNELS][0],
    }


def builder_changes(shapes, config):
    """What the weights were made with."""
    pool = model_args(config).get("global_pool", config.get("global_pool", "avg"))
    if pool != "avg":
        raise CheckpointError(
            f"The configuration asks for the pooling {pool!r} of timm. Built here is "
            "avg, the average over the tokens."
        )
    return {
        "num_classes": shapes.get("head.weight", (0,))[0],
        "activation": "gelu",
        "epsilon": 1e-6,
    }


def cells(shapes, kwargs):
    """(name of a kernel across tokens, patches it covers, pixels a patch)."""
    return _TOKENS, shapes[_TOKENS][1], kwargs["patch_size"]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    block, ours = "blocks.{i}.", "mixer_block_{i}/"
    return KeyMap(
        ("stem.proj.weight", "stem/kernel", CONVOLUTION),
        ("stem.proj.bias", "stem/bias"),
        *torch_norm(block + "norm1", ours + "token_norm"),
        *torch_dense(block + "mlp_tokens.fc1", ours + "token_mixing/dense_0"),
        *torch_dense(block + "mlp_tokens.fc2", ours + "token_mixing/dense_1"),
        *torch_norm(block + "norm2", ours + "channel_norm"),
        *torch_dense(block + "mlp_channels.fc1", ours + "channel_mixing/dense_0"),
        *torch_dense(block + "mlp_channels.fc2", ours + "channel_mixing/dense_1"),
        *torch_norm("norm", "pre_head_norm"),
        *torch_dense("head", "head"),
    )


def differs(record):
    """In words, what timm's Mixers do not have, or None.

    They have the exact GELU, no other by name, and LayerNorm 1e-6. A name fixes patch
    size, depth and width; of the rest, `model_args` gives all numbers.
    """
    sizes = {"(patch_size, depth, width)": _name(record["kwargs"])}
    return unlike(
        {**record["kwargs"], **sizes},
        {**dict.fromkeys(sizes, _NAMES), "activation": ["gelu"], "epsilon": [1e-6]},
    )


def _name(kwargs):
    return tuple(kwargs[key] for key in ("patch_size", "depth", "width"))


def config(record):
    """timm's `config.json` for one of our models, or None where timm has no such."""
    if differs(record):
        return None
    kwargs = record["kwargs"]
    width = kwargs["width"]
    return {
        "architecture": _NAMES[_name(kwargs)],
        "num_classes": kwargs["num_classes"],
        "num_features": width,
        "pretrained_cfg": ends("stem.proj", "head"),
        "global_pool": "avg",
        "model_args": {
            "img_size": list(kwargs["image_size"]),
            "mlp_ratio": [
                ratio(kwargs["tokens_mlp_dim"], width),
                ratio(kwargs["channels_mlp_dim"], width),
            ],
        },
    }
