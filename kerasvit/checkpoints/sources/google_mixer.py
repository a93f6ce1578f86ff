"""Google's `.npz` files of MLP-Mixers: google-research/vision_transformer, big_vision.

Flax names, as vit_jax/models_mixer.py and big_vision/models/mlp_mixer.py write them, or
as they were before Flax's linen: `load` of the latter file reads both.
"""

import math
import re

from ..key_map import KeyMap, Transform
from .count import count
from .google import ORIGIN as ORIGIN
from .google import dense, norm
from .google import dropped as dropped
from .google import image_size as image_size
from .google import label_names as label_names
from .google import own_name as own_name

BUILDERS = ("MLPMixer",)
KERNEL = "bicubic_antialias"  # Google's code has none; measured: `models.MLPMixer`

_PARTS = ("token_mixing", "channel_mixing")


def recognises(names) -> bool:
    """Whether the names are Google's."""
    new = "stem/kernel" in names and any(n.startswith("MixerBlock_") for n in names)
    return new or any(n.startswith("Mixer/encoderblock_") for n in names)


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    names = _names(shapes)
    patch, _, _, width = shapes[f"{names['stem']}/kernel"]
    return {
        "patch_size": patch,
        "width": width,
        "depth": count(shapes, names["norms"][1].replace("{i}", "{}") + "/scale"),
        "tokens_mlp_dim": _hidden(shapes, "token_mixing"),
        "channels_mlp_dim": _hidden(shapes, "channel_mixing"),
    }


def builder_changes(shapes, config):
    """What the weights were made with."""
    return {
        "num_classes": shapes.get("head/kernel", (0, 0))[1],
        "activation": "gelu_tanh",  # flax.linen.gelu's default
        "epsilon": 1e-6,  # flax.linen.LayerNorm's default
    }


def cells(shapes, kwargs):
    """(name of a kernel across tokens, patches it covers, pixels a patch)."""
    name = _first_layer(shapes, "token_mixing", "kernel")
    tokens = math.prod(shapes[name]) // _hidden(shapes, "token_mixing")
    return name, tokens, kwargs["patch_size"]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`, in the spelling of `shapes`."""
    shapes = shapes or {}
    names, ours = _names(shapes), "mixer_block_{i}/"
    first, second = names["norms"]
    return KeyMap(
        *dense(names["stem"], "stem"),
        *norm(first, ours + "token_norm"),
        *_mixing(names["token_mixing"], ours + "token_mixing", shapes),
        *norm(second, ours + "channel_norm"),
        *_mixing(names["channel_mixing"], ours + "channel_mixing", shapes),
        *norm(names["norm"], "pre_head_norm"),
        *dense("head", "head"),
    )


def _old(shapes):
    return any(name.startswith("Mixer/encoderblock_") for name in shapes)


def _names(shapes):
    """What the file calls the parts; {what} in an MLP's layers is kernel or bias."""
    if _old(shapes):
        block, layers = "Mixer/encoderblock_{i}/", ("{what}1", "{what}2")
        stem, norm = "embedding", "Mixer/encoder_norm"
        norms = _numbered(shapes, "LayerNorm")
        parts = {part: _numbered(shapes, f"{part}_phase")[0] for part in _PARTS}
    else:
        block, layers = "MixerBlock_{i}/", ("Dense_0/{what}", "Dense_1/{what}")
        stem, norm = "stem", "pre_head_layer_norm"
        norms = ("LayerNorm_0", "LayerNorm_1")
        parts = {part: part for part in _PARTS}
    mlps = {
        part: [f"{block}{name}/{layer}" for layer in layers]
        for part, name in parts.items()
    }
    return {"stem": stem, "norm": norm, "norms": [block + n for n in norms], **mlps}


def _numbered(shapes, kind):
    """A kind of part of a block by its numbers, which older Flax may count together."""
    pattern = re.compile(rf"Mixer/encoderblock_0/{kind}_(\d+)/.*")
    found = {int(m[1]) for name in shapes if (m := pattern.fullmatch(name))}
    return [f"{kind}_{n}" for n in sorted(found)]


def _first_layer(shapes, part, what):
    """The name, in the first block, of a tensor of an MLP's first layer."""
    return _names(shapes)[part][0].format(i=0, what=what)


def _hidden(shapes, part):
    return math.prod(shapes[_first_layer(shapes, part, "bias")])


def _mixing(layers, path, shapes):
    for n, layer in enumerate(layers):
        for what, rank in (("kernel", 2), ("bias", 1)):
            shape = shapes.get(layer.format(i=0, what=what), ())
            rule = layer.replace("{what}", what), f"{path}/dense_{n}/{what}"
            yield (*rule, _squeezed(shape, rank)) if len(shape) > rank else rule


def _squeezed(shape, rank):
    # Before linen the kernels and biases had axes of one besides their own.
    def read(array):
        own = [side for side in array.shape if side > 1]
        return [array.reshape([1] * (rank - len(own)) + own)]

    return Transform(read, lambda arrays: arrays[0].reshape(shape))
