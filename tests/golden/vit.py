"""Maps the activations of the original code of ViT, BEiT and EVA to layers."""

import re

import numpy as np

from kerasvit.models import (
    BEiTTransformer,
    RotaryVisionTransformer,
    VisionTransformer,
)

from .family import Family


def nothing(config):
    """No arguments: the tensors determine all of them."""
    return {}


def heads_of_timm(config):
    """The number of heads, which a fused kernel of torch does not determine."""
    return {"num_heads": config["num_heads"]}


def _timm(config):
    arguments = heads_of_timm(config)
    # Settings that only timm's configuration states.
    if "no_embed_class" in config:
        arguments["positions"] = "patches" if config["no_embed_class"] else "tokens"
    if config.get("global_pool") == "avg" and config.get("fc_norm") is False:
        arguments["pool"] = "average"
    return arguments


def _transformers(config):
    return {"num_heads": config["num_attention_heads"]}


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
        # timm normalises after the pooling, outside `forward_features`.
        return model.get_layer(f"encoder_block_{kwargs['depth'] - 1}").output
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    number = re.fullmatch(
        r"(?:block|hook/blocks\.|hidden_state|hook/encoder\.layers\.encoder_layer_)(\d+)",
        quantity,
    )
    if number is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    number = int(number[1])
    if quantity.startswith("hidden_state"):  # 0 is the input of the first block
        number -= 1
    name = f"encoder_block_{number}" if number >= 0 else "dropout"
    return model.get_layer(name).output


LAYERS = {
    "embedding": "embedding",
    "hook/patch_embed": "embedding",
    "after_posembed": "position_embedding",
    "encoded": "encoder_norm",
    "hook/encoder": "encoder_norm",
    "hook/encoder.dropout": "dropout",
    "features": "encoder_norm",
}


FAMILIES = {
    kind: Family(VisionTransformer, arguments, _tap, _layout)
    for kind, arguments in {
        "vit_jax_npz": nothing,
        "big_vision_npz": nothing,
        "timm_vit": _timm,
        "torchvision_vit": heads_of_timm,
        "keras_hub_vit": nothing,
        **dict.fromkeys(("hf_vit", "hf_mae", "hf_dinov2"), _transformers),
        **dict.fromkeys(("hf_clip", "hf_siglip"), _transformers),
    }.items()
}
FAMILIES |= {
    kind: Family(BEiTTransformer, nothing, _tap, _layout)
    for kind in ("timm_beit", "hf_beit", "hf_data2vec")
}
FAMILIES |= {
    kind: Family(RotaryVisionTransformer, nothing, _tap, _layout)
    for kind in ("timm_eva", "hf_dinov3", "keras_hub_dinov3")
}
