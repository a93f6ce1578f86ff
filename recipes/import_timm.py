"""timm, also beside a torchvision that was made for another torch.

Of torchvision, timm takes transforms of images alone; but its import wants operators of
two names, which are in a compiled part that a torch without CUDA cannot load.
"""

import functools
import importlib
import importlib.util
from pathlib import Path


def import_timm():
    """The module timm.

    Raises:
        ImportError: It is not installed, or torch is not.
    """
    if torchvision := importlib.util.find_spec("torchvision"):
        _have_operators(Path(torchvision.origin).with_name("_C.so"))
    return importlib.import_module("timm")


@functools.cache  # which keeps the definitions: they end with their library
def _have_operators(compiled):
    import torch

    try:
        torch.ops.load_library(compiled)
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                library.define(
                    f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor"
                )
        return library
