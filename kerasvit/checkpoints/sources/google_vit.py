"""Google's `.npz` files: google-research/vision_transformer and big_vision.

Flax names, as vit_jax/models_vit.py and big_vision/models/vit.py write them. The two
number the parts of a block differently, and big_vision keeps the position table at the
top, without a row for the class token.
"""

from ..key_map import KeyMap, split_heads
from .count import count
from .google import KERNEL as KERNEL
from .google import ORIGIN as ORIGIN
from .google import dense, norm
from .google import dropped as dropped
from .google import image_size as image_size
from .google import label_names as label_names
from .google import own_name as own_name

BUILDERS = ("VisionTransformer",)

_TABLE_ALL = "Transformer/posembed_input/pos_embedding"  # class token's row included
_TABLE_PATCHES = "pos_embedding"


def recognises(names) -> bool:
    """Whether the names are Google's, of a model without a ResNet."""
    return "conv_root/kernel" not in names and holds_transformer(names)


def holds_transformer(names):
    """Whether there is Google's embedding and encoder among the names."""
    return "embedding/kernel" in names and any(
        name.startswith("Transformer/encoderblock_") for name in names
    )


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    patch, _, _, width = shapes["embedding/kernel"]
    return {
        "patch_size": patch,
        "width": width,
        "depth": count(shapes, "Transformer/encoderblock_{}/LayerNorm_0/scale"),
        "num_heads": shapes[f"{_block(shapes)[0]}/query/kernel".format(i=0)][1],
        "mlp_dim": shapes[f"{_block(shapes)[2]}/Dense_0/kernel".format(i=0)][1],
    }


def builder_changes(shapes, config):
    """What the weights were made with, from the keys present."""
    class_token = "cls" in shapes
    if "MAPHead_0/probe" in shapes:
        pool = "attention"
    else:
        pool = "token" if class_token else "average"
    if _TABLE_ALL in shapes:
        positions = "tokens"
    else:
        positions = "patches" if _TABLE_PATCHES in shapes else "sincos2d"
    query = f"{_block(shapes)[0]}/query/bias".format(i=0)
    return {
        "num_classes": shapes.get("head/kernel", (0, 0))[1],
        "pool": pool,
        "class_token": class_token,
        "register_tokens": 0,
        "positions": positions,
        "representation_size": shapes.get("pre_logits/kernel", (0, None))[1],
        "qkv_bias": query in shapes,
        "layer_scale": None,
        "activation": "gelu_tanh",  # flax.linen.gelu's default
        "epsilon": 1e-6,  # flax.linen.LayerNorm's default
    }


def cells(shapes, kwargs):
    """(name of the position table, patches it covers, pixels a patch), or None."""
    for name in (_TABLE_ALL, _TABLE_PATCHES):
        if name in shapes:
            # Named so, and only so, it has a row for the class token.
            others = kwargs["class_token"] if name == _TABLE_ALL else 0
            return name, shapes[name][1] - others, kwargs["patch_size"]
    return None


def _block(shapes):
    # (attention, second norm, MLP): released files keep the numbering of an older Flax,
    # one counter for all parts; big_vision counts each kind of part by itself.
    block = "Transformer/encoderblock_{i}/"
    names = ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
    if block.format(i=0) + names[1] + "/scale" not in shapes:
        names = ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
    return [block + name for name in names]


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`, in the spelling of `shapes`."""
    return KeyMap(*rules(kwargs, shapes or {}))


def rules(kwargs, shapes):
    """Those of the embedding and all behind it."""
    attention, second_norm, mlp = _block(shapes)
    heads, ours = kwargs["num_heads"], "encoder_block_{i}/"
    block = "Transformer/encoderblock_{i}/"
    pool = "MAPHead_0/"
    table = _TABLE_ALL if kwargs["positions"] == "tokens" else _TABLE_PATCHES
    return (
        ("cls", "class_token/tokens"),
        (table, "position_embedding/table"),
        *dense("embedding", "embedding"),
        *norm(block + "LayerNorm_0", ours + "attention_norm"),
        *_attention(attention, ours + "attention", heads),
        *norm(second_norm, ours + "mlp_norm"),
        *dense(mlp + "/Dense_0", ours + "mlp/dense_0"),
        *dense(mlp + "/Dense_1", ours + "mlp/dense_1"),
        *norm("Transformer/encoder_norm", "encoder_norm"),
        (pool + "probe", "pool/probe"),
        *_attention(pool + "MultiHeadDotProductAttention_0", "pool/attention", heads),
        *norm(pool + "LayerNorm_0", "pool/mlp_norm"),
        *dense(pool + "MlpBlock_0/Dense_0", "pool/mlp/dense_0"),
        *dense(pool + "MlpBlock_0/Dense_1", "pool/mlp/dense_1"),
        *dense("pre_logits", "pre_logits"),
        *dense("head", "head"),
    )


def _attention(name, path, heads):
    for part in ("query", "key", "value"):  # kernel (D, heads, d), bias (heads, d)
        yield f"{name}/{part}/kernel", f"{path}/{part}/kernel", split_heads(heads, 1)
        yield f"{name}/{part}/bias", f"{path}/{part}/bias", split_heads(heads, 0)
    # The output's kernel is (heads, d, D).
    yield f"{name}/out/kernel", f"{path}/output/kernel", split_heads(heads, 0)
    yield f"{name}/out/bias", f"{path}/output/bias"
