"""Hugging Face transformers' ViT, and its DeiT without the teacher's head.

Names as `ViTForImageClassification` and `ViTModel` write them, the latter without the
leading "vit."; transformers/models/vit/modeling_vit.py. `DeiTForImageClassification`
of transformers/models/deit/modeling_deit.py reads the class token alone: its
distillation token is one register.
"""

from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .count import count

ORIGIN = "transformers"
BUILDERS = ("VisionTransformer",)
KERNEL = "bicubic"  # interpolate_pos_encoding, without antialias

# The activations of transformers/activations.py that are built.
GELU = ("gelu", "gelu_python")
_GELU_TANH = ("gelu_new", "gelu_fast", "gelu_accurate")
_GELU_TANH += ("gelu_pytorch_tanh", "gelu_python_tanh")


def recognises(names) -> bool:
    """Whether the names are transformers'."""
    patches = "embeddings.patch_embeddings.projection.weight" in names
    distilled = "embeddings.distillation_token" in names
    return patches and (not distilled or "classifier.weight" in names)


def own_name(name):
    """The name without the model it sits in."""
    return name.removeprefix("vit.").removeprefix("deit.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.startswith("pooler.") and "classifier.weight" in names:
        return "pooler, which ViTForImageClassification does not use"
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    width, _, patch, _ = shapes["embeddings.patch_embeddings.projection.weight"]
    numbers = {
        "patch_size": patch,
        "width": width,
        "depth": count(shapes, "encoder.layer.{}.layernorm_before.weight"),
        "mlp_dim": shapes["encoder.layer.0.intermediate.dense.weight"][0],
    }
    if "num_attention_heads" in config:
        numbers["num_heads"] = config["num_attention_heads"]
    return numbers


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and `config.json`."""
    check(config, {"hidden_act": GELU + _GELU_TANH})
    pooler = shapes.get("pooler.dense.weight")
    if pooler:
        check(config, {"pooler_act": "tanh"})
    tanh = config.get("hidden_act") in _GELU_TANH
    return {
        "num_classes": shapes.get("classifier.weight", (0,))[0],
        "pool": "token",
        "class_token": True,
        "register_tokens": shapes.get("embeddings.distillation_token", (1, 0))[1],
        "positions": "tokens",
        # ViTModel's pooler is the paper's pre-logits.
        "representation_size": pooler and pooler[0],
        "qkv_bias": "encoder.layer.0.attention.attention.query.bias" in shapes,
        "layer_scale": None,
        "activation": "gelu_tanh" if tanh else "gelu",
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def left_open(shapes, config):
    """What neither the tensors nor the configuration tell, as in `timm_vit`."""
    keys = {"hidden_act": "activation", "layer_norm_eps": "epsilon"}
    keys = {} if config.get("model_type") else keys  # else the defaults of its class
    keys = {"num_attention_heads": "num_heads", **keys}
    return tuple(ours for key, ours in keys.items() if key not in config), ()


def cells(shapes, kwargs):
    """(name of the position table, patches it covers, pixels a patch), or None."""
    name = "embeddings.position_embeddings"
    if name not in shapes:
        return None
    return name, shapes[name][1] - 1 - kwargs["register_tokens"], kwargs["patch_size"]


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
    return KeyMap(
        *encoder(),
        ("embeddings.distillation_token", "register_tokens/tokens"),
        *torch_dense("pooler.dense", "pre_logits"),
        *torch_dense("classifier", "head"),
    )


def check(config, built):
    """Raises where `config.json` asks for what the weights are not, or is not built.

    Args:
        config: Of transformers.
        built: {key: the only value that it may have where it is there, or a tuple of
            all}.
    """
    for key, values in built.items():
        values = values if isinstance(values, tuple) else (values,)
        if config.get(key, values[0]) not in values:
            raise CheckpointError(
                f"config.json asks for {key}={config[key]!r}. Built here, for the "
                f"tensors of this file, is {' or '.join(map(repr, values))} only."
            )


def encoder():
    """Rules of patches, class token, blocks and the last normalisation."""
    return (
        ("embeddings.cls_token", "class_token/tokens"),
        ("embeddings.position_embeddings", "position_embedding/table"),
        *patches(),
        *block("encoder.layer.{i}.", "encoder_block_{i}/", "attention.attention."),
        *torch_norm("layernorm", "encoder_norm"),
    )


def patches():
    """Rules of the patches' projection."""
    name = "embeddings.patch_embeddings.projection"
    return (
        (f"{name}.weight", "embedding/kernel", CONVOLUTION),
        (f"{name}.bias", "embedding/bias"),
    )


def block(name, ours, attention):
    """Rules of a block; `attention` is where its query, key and value are."""
    return (
        *torch_norm(name + "layernorm_before", ours + "attention_norm"),
        *torch_dense(name + attention + "query", ours + "attention/query"),
        *torch_dense(name + attention + "key", ours + "attention/key"),
        *torch_dense(name + attention + "value", ours + "attention/value"),
        *torch_dense(name + "attention.output.dense", ours + "attention/output"),
        *torch_norm(name + "layernorm_after", ours + "mlp_norm"),
        *torch_dense(name + "intermediate.dense", ours + "mlp/dense_0"),
        *torch_dense(name + "output.dense", ours + "mlp/dense_1"),
    )
