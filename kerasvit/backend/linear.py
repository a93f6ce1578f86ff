"""A matrix product with a bias, in one operation where the backend has one."""

import keras
from keras import ops

from kerasvit.typing import Tensor

if keras.backend.backend() == "torch":
    from torch import addmm


def product_plus_bias(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns `x @ kernel + bias` of matrices (rows, D) and (D, units).

    PyTorch starts the product from the bias, which saves a second pass over the result.
    """
    if keras.backend.backend() == "torch":
        return addmm(bias, x, kernel)
    return ops.add(ops.matmul(x, kernel), bias)
