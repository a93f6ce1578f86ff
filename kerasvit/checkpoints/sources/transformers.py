"""Hugging Face transformers' ViT.

Names as `ViTForImageClassification` and `ViTModel` write them, the latter without the
leading "vit."; transformers/models/vit/modeling_vit.py.
"""

from ..key_map import CONVOLUTION, TRANSPOSE, KeyMap

KERNEL = "bicubic"  # interpolate_pos_encoding, without antialias

_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")


def recognises(names) -> bool:
    """Whether the names are transformers'."""
    return "embeddings.patch_embeddings.projection.weight" in names


def own_name(name):
    """The name without the model it sits in."""
    return name.removeprefix("vit.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.startswith("pooler.") and "classifier.weight" in names:
        return "pooler, which ViTForImageClassification does not use"
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    width, _, patch, _ = shapes["embeddings.patch_embeddings.projection.weight"]
    block = "encoder.layer.{}.layernorm_before.weight"
    depth = next(i for i in range(len(shapes) + 1) if block.format(i) not in shapes)
    numbers = {
        "patch_size": patch,
        "width": width,
        "depth": depth,
        "mlp_dim": shapes["encoder.layer.0.intermediate.dense.weight"][0],
    }
    if "num_attention_heads" in config:
        numbers["num_heads"] = config["num_attention_heads"]
    return numbers


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and `config.json`."""
    tanh = config.get("hidden_act") in _TANH
    return {
        "num_classes": shapes.get("classifier.weight", (0,))[0],
        "pool": "token",
        "class_token": True,
        "register_tokens": 0,
        "positions": "tokens",
        # ViTModel's pooler is the paper's pre-logits.
        "representation_size": (
            None
            if "classifier.weight" in shapes
            else shapes.get("pooler.dense.weight", (None,))[0]
        ),
        "qkv_bias": "encoder.layer.0.attention.attention.query.bias" in shapes,
        "layer_scale": None,
        "activation": "gelu_tanh" if tanh else "gelu",
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def position_rows(shapes):
    """(name of the position table, its rows), or None."""
    shape = shapes.get("embeddings.position_embeddings")
    return shape and ("embeddings.position_embeddings", shape[1])


def image_size(config):
    """(height, width) that the configuration names, or None."""
    size = config.get("image_size")
    return (size, size) if isinstance(size, int) else size and tuple(size)


def label_names(config):
    """Names of the classes, or None where they are only numbered."""
    names = config.get("id2label") or {}
    names = [names[key] for key in sorted(names, key=int)]
    numbered = [f"LABEL_{i}" for i in range(len(names))]
    return None if names == numbered else names


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    block, ours = "encoder.layer.{i}.", "encoder_block_{i}/"
    patches = "embeddings.patch_embeddings.projection"
    attention = block + "attention.attention."
    return KeyMap(
        ("embeddings.cls_token", "class_token/tokens"),
        ("embeddings.position_embeddings", "position_embedding/table"),
        (patches + ".weight", "embedding/kernel", CONVOLUTION),
        (patches + ".bias", "embedding/bias"),
        *_norm(block + "layernorm_before", ours + "attention_norm"),
        *_dense(attention + "query", ours + "attention/query"),
        *_dense(attention + "key", ours + "attention/key"),
        *_dense(attention + "value", ours + "attention/value"),
        *_dense(block + "attention.output.dense", ours + "attention/output"),
        *_norm(block + "layernorm_after", ours + "mlp_norm"),
        *_dense(block + "intermediate.dense", ours + "mlp/dense_0"),
        *_dense(block + "output.dense", ours + "mlp/dense_1"),
        *_norm("layernorm", "encoder_norm"),
        *_dense("pooler.dense", "pre_logits"),
        *_dense("classifier", "head"),
    )


def _dense(name, path):
    return (
        (f"{name}.weight", f"{path}/kernel", TRANSPOSE),
        (f"{name}.bias", f"{path}/bias"),
    )


def _norm(name, path):
    return (f"{name}.weight", f"{path}/gamma"), (f"{name}.bias", f"{path}/beta")
