"""Maps the activations of Swin's original code to layers."""

import re

from kerasvit.models import SwinTransformer

from .family import Family


def _config_arguments(config):
    # The tensors determine it if a map is larger than a window.
    window = config.get("window_size")
    window = window[0] if isinstance(window, (list, tuple)) else window
    return {"window_size": window} if window else {}


def _tap(model, quantity):
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("head").input
    if quantity == "features":
        return model.get_layer("encoder_norm").output
    if quantity == "hook/patch_embed":
        return model.get_layer("embedding_norm").output
    found = re.fullmatch(
        r"hook/layers\.(\d+)(?:\.blocks\.(\d+)|(\.downsample))?", quantity
    )
    if found is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    stage, block, merging = found.groups()
    if merging:
        return model.get_layer(f"stage_{stage}_merging").output
    if block is None:  # a stage ends with its last block
        block = model.record["kwargs"]["depths"][int(stage)] - 1
    return model.get_layer(f"stage_{stage}_block_{block}").output


FAMILIES = {
    kind: Family(SwinTransformer, _config_arguments, _tap)
    for kind in ("timm_swin", "hf_swin")
}
