"""Google's `.npz` files: google-research/vision_transformer and big_vision.

Flax names, as vit_jax/models_vit.py and big_vision/models/vit.py write them. The two
number the parts of a block differently, and big_vision keeps the position table at the
top, without a row for the class token.
"""

from ..key_map import KeyMap, split_heads

KERNEL = "corner_linear"  # vit_jax/checkpoint.py, interpolate_posembed

_TABLE_ALL = "Transformer/posembed_input/pos_embedding"  # class token's row included
_TABLE_PATCHES = "pos_embedding"


def recognises(names) -> bool:
    """Whether the names are Google's."""
    return "embedding/kernel" in names and any(
        name.startswith("Transformer/encoderblock_") for name in names
    )


def own_name(name):
    """The name without the tree it was saved in."""
    # A training state keeps the weights beside the optimiser's moments.
    return name.removeprefix("opt/target/").removeprefix("params/")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.startswith(("opt/state/", "opt/", "extra/")) or name in ("step", "epoch"):
        return "state of the optimiser"
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    patch, _, _, width = shapes["embedding/kernel"]
    block = "Transformer/encoderblock_{}/LayerNorm_0/scale"
    depth = next(i for i in range(len(shapes) + 1) if block.format(i) not in shapes)
    return {
        "patch_size": patch,
        "width": width,
        "depth": depth,
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


def position_rows(shapes):
    """(name of the position table, its rows), or None."""
    for name in (_TABLE_ALL, _TABLE_PATCHES):
        if name in shapes:
            return name, shapes[name][1]
    return None


def image_size(config):
    """An `.npz` says nothing of it."""
    return None


def label_names(config):
    """An `.npz` says nothing of them."""
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
    shapes = shapes or {}
    attention, second_norm, mlp = _block(shapes)
    heads, ours = kwargs["num_heads"], "encoder_block_{i}/"
    block = "Transformer/encoderblock_{i}/"
    pool = "MAPHead_0/"
    table = _TABLE_ALL if kwargs["positions"] == "tokens" else _TABLE_PATCHES
    return KeyMap(
        ("cls", "class_token/tokens"),
        (table, "position_embedding/table"),
        *_dense("embedding", "embedding"),
        *_norm(block + "LayerNorm_0", ours + "attention_norm"),
        *_attention(attention, ours + "attention", heads),
        *_norm(second_norm, ours + "mlp_norm"),
        *_dense(mlp + "/Dense_0", ours + "mlp/dense_0"),
        *_dense(mlp + "/Dense_1", ours + "mlp/dense_1"),
        *_norm("Transformer/encoder_norm", "encoder_norm"),
        (pool + "probe", "pool/probe"),
        *_attention(pool + "MultiHeadDotProductAttention_0", "pool/attention", heads),
        *_norm(pool + "LayerNorm_0", "pool/mlp_norm"),
        *_dense(pool + "MlpBlock_0/Dense_0", "pool/mlp/dense_0"),
        *_dense(pool + "MlpBlock_0/Dense_1", "pool/mlp/dense_1"),
        *_dense("pre_logits", "pre_logits"),
        *_dense("head", "head"),
    )


def _dense(name, path):
    return (
        (f"{name}/kernel", f"{path}/kernel"),
        (f"{name}/bias", f"{path}/bias"),
    )


def _norm(name, path):
    return (f"{name}/scale", f"{path}/gamma"), (f"{name}/bias", f"{path}/beta")


def _attention(name, path, heads):
    for part in ("query", "key", "value"):  # kernel (D, heads, d), bias (heads, d)
        yield f"{name}/{part}/kernel", f"{path}/{part}/kernel", split_heads(heads, 1)
        yield f"{name}/{part}/bias", f"{path}/{part}/bias", split_heads(heads, 0)
    # The output's kernel is (heads, d, D).
    yield f"{name}/out/kernel", f"{path}/output/kernel", split_heads(heads, 0)
    yield f"{name}/out/bias", f"{path}/output/bias"
