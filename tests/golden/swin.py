"""Maps the activations of Swin's original code to layers."""

import re

from kerasvit.models import SwinTransformer

from .family import Family

_EMBEDDING = "hook/patch_embed"


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
    if quantity == _EMBEDDING:
        return model.get_layer("embedding_norm").output
    found = re.fullmatch(
        r"hook/layers\.(\d+)(?:\.blocks\.(\d+)|(\.downsample))?", quantity
    )
    modules = re.fullmatch(r"hook/features\.(\d+)(?:\.(\d+))?", quantity)
    if modules:
        return _of_torchvision(model, *modules.groups())
    if found is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    stage, block, merging = found.groups()
    if merging:
        return model.get_layer(f"stage_{stage}_merging").output
    if block is None:  # a stage ends with its last block
        block = model.record["kwargs"]["depths"][int(stage)] - 1
    return model.get_layer(f"stage_{stage}_block_{block}").output


def _of_torchvision(model, module, block):
    """torchvision counts embedding, stages and mergings together."""
    stage, odd = divmod(int(module), 2)
    if odd:
        return _tap(model, f"hook/layers.{stage}" + f".blocks.{block}" * bool(block))
    return _tap(model, f"hook/layers.{stage}.downsample" if stage else _EMBEDDING)


FAMILIES = {
    kind: Family(SwinTransformer, _config_arguments, _tap)
    for kind in ("timm_swin", "hf_swin", "torchvision_swin")
}
