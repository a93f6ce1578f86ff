"""Changes of shape inside the calls of layers."""

import keras
from keras import ops

# `ops.reshape` looks for symbolic tensors in the shape too, in 0.03 ms on PyTorch: of a
# ViT's forward pass 15 % of the time in Python. Layers are called with tensors only.
if keras.backend.backend() == "torch":
    from torch import reshape
else:
    reshape = ops.reshape

__all__ = ["reshape"]
