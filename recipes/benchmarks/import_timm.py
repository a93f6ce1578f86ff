"""Imports timm, also with a torchvision that was compiled for another torch.

timm uses only image transforms of torchvision. But torchvision's import needs two
operators from a compiled library, which a torch without CUDA cannot load.
"""

import functools
import importlib
from pathlib import Path


def import_timm():
    """Returns the module timm.

    Raises:
        ImportError: timm or torch is not installed.
    """
    try:
        return importlib.import_module("timm")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    _define_operators()
    return importlib.import_module("timm")


def timm_model(folder: Path, config: dict):
    """Loads timm's model of a folder of `save_pretrained`, in plain torch.

    Args:
        folder: It has the file of the weights.
        config: Content of its config.json.
    """
    from safetensors.torch import load_file

    model = import_timm().create_model(
        config["architecture"],
        num_classes=config["num_classes"],
        **config["model_args"],
    )
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


@functools.cache  # keeps the library, with which the definitions are deleted
def _define_operators():
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(
                f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )
    return library
