"""Imports timm, also with a torchvision that was compiled for another torch.

timm uses only image transforms of torchvision. But torchvision's import needs two
operators from a compiled library, which a torch without CUDA cannot load.
"""

import functools
import importlib


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
