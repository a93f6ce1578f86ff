"""Matrix products, with the fastest operation of each backend."""

import keras
from keras import ops

from kerasvit.typing import Tensor

TORCH = keras.backend.backend() == "torch"
if TORCH:
    from . import product_torch


def product(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns `x @ kernel`, plus the bias if there is one.

    Args:
        x: (rows, D).
        kernel: (D, units).
        bias: (units,). PyTorch starts the product from it, which saves a second pass
            over the result.
    """
    if TORCH:
        return product_torch.product(x, kernel, bias)
    rows = ops.matmul(x, kernel)
    return rows if bias is None else ops.add(rows, bias)
