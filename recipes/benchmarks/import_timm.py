"""timm, also beside a torchvision that was made for another torch.

Of torchvision, timm takes transforms of images alone; but its import wants operators of
two names, which are in a compiled part that a torch without CUDA cannot load.
"""

import functools
import importlib


def import_timm():
    """The module timm.

    Raises:
        ImportError: It is not installed, or torch is not.
    """
    try:
        return importlib.import_module("timm")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    _define_operators()
    return importlib.import_module("timm")


@functools.cache  # which keeps the definitions: they end with their library
def _define_operators():
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(
                f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )
    return library
