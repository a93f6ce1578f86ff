"""A Vision Transformer by the names its original code gave its activations."""

import re

import numpy as np

from kerasvit.models import VisionTransformer

from .family import Family, pair


def _flax(config):
    return {
        "patch_size": config["patch_size"][0],
        "width": config["hidden_size"],
        "depth": config["num_layers"],
        "num_heads": config["num_heads"],
        "mlp_dim": config["mlp_dim"],
    }, {"image_size": pair(config["image_size"])}


def timm_numbers(config):
    numbers = {
        "patch_size": config["patch_size"],
        "width": config["embed_dim"],
        "depth": config["depth"],
        "num_heads": config["num_heads"],
        "mlp_dim": int(config["embed_dim"] * config.get("mlp_ratio", 4)),
    }
    changes = {"image_size": pair(config["img_size"])}
    # What timm keeps in its configuration and a bare state dict cannot tell.
    if "no_embed_class" in config:
        changes["positions"] = "patches" if config["no_embed_class"] else "tokens"
    if config.get("global_pool") == "avg" and config.get("fc_norm") is False:
        changes["pool"] = "average"
    return numbers, changes


def _transformers(config):
    return {
        "patch_size": config["patch_size"],
        "width": config["hidden_size"],
        "depth": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "mlp_dim": config["intermediate_size"],
    }, {"image_size": pair(config["image_size"])}


def _layout(model, quantity, array):
    if quantity != "embedding":
        return array
    height, width = model.record["kwargs"]["image_size"]  # NHWC there, tokens here
    patch = model.record["kwargs"]["patch_size"]
    return np.reshape(array, (len(array), height // patch, width // patch, -1))


def _tap(model, quantity):
    kwargs = model.record["kwargs"]
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("head").input
    if quantity == "features" and kwargs["pool"] == "average_then_norm":
        # timm puts the normalisation behind the pooling, out of `forward_features`.
        return model.get_layer(f"encoder_block_{kwargs['depth'] - 1}").output
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    number = re.fullmatch(r"(?:block|hook/blocks\.|hidden_state)(\d+)", quantity)
    if number is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    number = int(number[1])
    if quantity.startswith("hidden_state"):  # 0 is what goes into the first block
        number -= 1
    name = f"encoder_block_{number}" if number >= 0 else "dropout"
    return model.get_layer(name).output


LAYERS = {
    "embedding": "embedding",
    "hook/patch_embed": "embedding",
    "after_posembed": "position_embedding",
    "encoded": "encoder_norm",
    "features": "encoder_norm",
}


FAMILIES = {
    kind: Family(VisionTransformer, numbers, _tap, _layout)
    for kind, numbers in {
        "vit_jax_npz": _flax,
        "big_vision_npz": _flax,
        "timm_vit": timm_numbers,
        "hf_vit": _transformers,
    }.items()
}
