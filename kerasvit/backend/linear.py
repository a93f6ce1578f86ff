"""Matrix products, with the fastest operation of each backend."""

import keras
from keras import ops

from kerasvit.typing import Tensor

TORCH = keras.backend.backend() == "torch"
if TORCH:
    from . import product_torch


def product(x: Tensor, kernel: Tensor) -> Tensor:
    """Returns `x @ kernel` of matrices (rows, D) and (D, units)."""
    return product_torch.product(x, kernel) if TORCH else ops.matmul(x, kernel)


def product_plus_bias(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns `x @ kernel + bias` of matrices (rows, D) and (D, units).

    PyTorch starts the product from the bias, which saves a second pass over the result.
    """
    if TORCH:
        return product_torch.product(x, kernel, bias)
    return ops.add(ops.matmul(x, kernel), bias)
