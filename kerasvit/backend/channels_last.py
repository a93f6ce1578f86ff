"""Operations on feature maps (batch, H, W, C), without Keras's copies on PyTorch.

Keras copies maps to channels first on PyTorch and back. A permuted view of channels
last is a memory format of PyTorch, in which its operations read and write the maps as
they lie. On other backends the operations are Keras's.
"""

import keras
from keras import ops

from kerasvit.typing import Tensor

TORCH = keras.backend.backend() == "torch"
if TORCH:
    from torch.nn import functional


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
        kernel = kernel.permute(3, 2, 0, 1)
        maps = functional.conv2d(_first(x), kernel, None, strides, border)
        return _last(maps)
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


def _first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)
