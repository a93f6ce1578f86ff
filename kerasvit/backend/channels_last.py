"""Operations on feature maps (batch, H, W, C), without Keras's copies on PyTorch.

Keras copies maps to channels first on PyTorch and back. A permuted view of channels
last is a memory format of PyTorch, in which its operations read and write the maps as
they lie. On other backends the operations are Keras's.
"""

import math

import keras
from keras import ops

from kerasvit.typing import Tensor

from .recorded import is_recorded

TORCH = keras.backend.backend() == "torch"
if TORCH:
    import torch
    from torch.nn import functional

    from .standardized_torch import standardized_rows
    from .transposed_torch import transposed


def convolution(x: Tensor, kernel: Tensor, strides: int, border: int) -> Tensor:
    """Computes a convolution with equal zero padding on all four sides.

    Args:
        x: Feature maps, (batch, H, W, C).
        kernel: (k, k, C, filters).
        strides: Stride in pixels.
        border: Number of zeros on each side.

    Returns:
        Feature maps, (batch, ⌊(H + 2 border − k) / strides⌋ + 1, …, filters).
    """
    if TORCH:
        # PyTorch would order the kernel as the maps by a slower copy, and leave its
        # gradient in that order.
        rows = transposed(kernel.flatten(0, 2)).unflatten(1, kernel.shape[:3])
        return _last(functional.conv2d(_first(x), _first(rows), None, strides, border))
    padding = "valid"
    if strides == 1 and kernel.shape[0] == 2 * border + 1:
        padding = "same"  # the same zeros, without a copy of the map
    elif border:
        x = ops.pad(x, ((0, 0), (border, border), (border, border), (0, 0)))
    return ops.conv(
        x, kernel, strides=strides, padding=padding, data_format="channels_last"
    )


def max_pool(x: Tensor, size: int, strides: int) -> Tensor:
    """Computes the maximum of windows of `size` × `size` pixels, without padding.

    Returns:
        Feature maps, (batch, ⌊(H − size) / strides⌋ + 1, …, C).
    """
    if TORCH:
        return _last(functional.max_pool2d(_first(x), size, strides))
    return ops.max_pool(
        x, size, strides=strides, padding="valid", data_format="channels_last"
    )


def relu_of_new(x: Tensor) -> Tensor:
    """Computes the ReLU of maps that nothing else reads, on PyTorch in place."""
    return functional.relu(x, inplace=True) if TORCH else ops.relu(x)


def standardized(kernel: Tensor, epsilon: float) -> Tensor:
    """Subtracts from each filter its mean, and divides it by its standard deviation.

    Args:
        kernel: (k, k, C, filters).
        epsilon: Small constant added to the variance.
    """
    if TORCH and is_recorded():
        return standardized_rows(kernel, epsilon)
    several = kernel.shape[-1] < math.prod(kernel.shape)  # numbers in each filter
    if TORCH and several and not torch.compiler.is_compiling():
        # The filters take the place of channels, and k · k rows of C that of pixels.
        maps = _first(kernel.flatten(0, 1)[None])
        return _last(
            functional.batch_norm(maps, None, None, training=True, eps=epsilon)
        ).reshape(kernel.shape)
    # Two plain means: ops.moments has wrong second derivatives on TensorFlow.
    kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
    variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
    return kernel / ops.sqrt(variance + epsilon)


def _first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)
