"""Converts a convolution to an equal attention layer.

Reference: Cordonnier et al. 2020, arXiv 1911.03584, for pixels; Li et al. 2021,
arXiv 2111.01353, for patches.
"""

from typing import Any

import keras
import numpy as np
from keras import ops


def set_convolution(
    attention: keras.layers.Layer,
    kernel: Any,
    bias: Any = None,
    *,
    sharpness: float = 1e4,
) -> None:
    """Sets an attention layer's weights to equal a convolution.

    The convolution has stride 1 and padding "same". Each of the K² heads attends to one
    shift and multiplies the value there by the kernel's matrix for that shift. Theorem
    1 of the paper states it for K² heads of size D_h and min(D_h, filters) output
    channels. As the rank of that matrix is at most C, a `head_dim` of C suffices for
    more output channels. Shifts out of the map must give zeros: `padding` pads the map
    by K // 2, as in the paper. For an even K, "same" reaches one cell further down and
    right than up and left.

    Args:
        attention: Built `RelativeAttention` or `QuadraticAttention` with K² heads of
            size ≥ min(C, filters) and a padding ≥ K // 2. Its queries and keys, if any,
            become zero.
        kernel: (K, K, C, filters), as in `keras.layers.Conv2D`.
        bias: (filters,); None: zeros.
        sharpness: Difference between the scores of a head's shift and of the next best
            one. 1e4 makes all other attention weights 0, but then positions have no
            gradient; about 5 is a soft start for training.

    Raises:
        ValueError: The attention is not built, or cannot represent this convolution.
    """
    kernel = ops.convert_to_numpy(kernel)
    _check(attention, kernel)
    size, _, channels, filters = kernel.shape
    bias = np.zeros(filters) if bias is None else ops.convert_to_numpy(bias)
    if bias.shape != (filters,):
        raise ValueError(
            f"`bias` must have the kernel's {filters} filters. Received: shape "
            f"{bias.shape}."
        )
    cells = np.moveaxis(np.mgrid[:size, :size], 0, -1).reshape(-1, 2)
    attention.look_at(cells - (size - 1) // 2, sharpness)
    value, output = _factors(kernel, attention.head_dim)
    attention.value.kernel.assign(value)
    attention.output_dense.kernel.assign(output)
    attention.output_dense.bias.assign(bias)
    if attention.key_dim:
        for dense in (attention.query, attention.key):
            dense.kernel.assign(np.zeros(dense.kernel.shape))


def _factors(kernel: np.ndarray, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors each head's matrix into value and output kernels."""
    channels, filters = kernel.shape[2:]
    matrices = kernel.reshape(-1, channels, filters)  # (heads, C, filters)
    value = np.zeros((channels, len(matrices), head_dim), kernel.dtype)
    output = np.zeros((len(matrices), head_dim, filters), kernel.dtype)
    if channels <= filters:  # one factor is the matrix, the other the identity
        value[:, :, :channels] = np.eye(channels)[:, None]
        output[:, :channels] = matrices
    else:
        value[:, :, :filters] = matrices.transpose(1, 0, 2)
        output[:, :filters] = np.eye(filters)
    return value.reshape(channels, -1), output.reshape(-1, filters)


def _check(attention: keras.layers.Layer, kernel: np.ndarray) -> None:
    if not attention.built:
        raise ValueError(
            "The attention must be built first, for the size of its map: "
            "`attention.build((None, height, width, channels))`."
        )
    if kernel.ndim != 4 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(
            "`kernel` must be (K, K, channels, filters), of a square convolution. "
            f"Received: shape {kernel.shape}."
        )
    size = kernel.shape[0]
    channels, filters = attention.value.kernel.shape[0], attention.filters
    if kernel.shape[2:] != (channels, filters):
        raise ValueError(
            f"`kernel` must have {channels} channels and {filters} filters, as the "
            f"attention has. Received: shape {kernel.shape}."
        )
    rank = min(channels, filters)
    conditions = {
        "num_heads": (attention.num_heads == size**2, f"{size**2}"),
        "head_dim": (attention.head_dim >= rank, f"{rank} or more"),
        "padding": (attention.padding >= size // 2, f"{size // 2} or more"),
    }
    for name, (met, expected) in conditions.items():
        if not met:
            raise ValueError(
                f"A {size} × {size} convolution of {channels} channels to {filters} "
                f"needs attention with `{name}` {expected}. Received: "
                f"{name}={getattr(attention, name)}."
            )


def kernel_of_patches(kernel: Any, patch_size: int) -> np.ndarray:
    """Returns the kernel over patches that equals a convolution over pixels.

    A patch is one cell of P·P·C channels: rows, pixels and colours in this order, as
    `PatchEmbedding` flattens it. Attention over patches that equals a convolution over
    pixels needs (2 ⌈(K − 1) / 2P⌉ + 1)² heads, the number of theorem 1 of
    arXiv 2111.01353: K² for pixels and odd K, 9 for every K from 2 to 2 P + 1.

    Args:
        kernel: (K, K, C, filters), over pixels, for stride 1 and padding "same".
        patch_size: P, in pixels.

    Returns:
        (K', K', P·P·C, P·P·filters) array, K' = 2 ⌈(K − 1) / 2P⌉ + 1. The bias is the
        bias of the pixels, repeated P·P times.

    Raises:
        ValueError: `kernel` is not square, or `patch_size` below 1.
    """
    kernel, p = ops.convert_to_numpy(kernel), patch_size
    if kernel.ndim != 4 or kernel.shape[0] != kernel.shape[1] or p < 1:
        raise ValueError(
            "`kernel` must be (K, K, channels, filters) and `patch_size` at least 1. "
            f"Received: shape {kernel.shape}, patch_size={p}."
        )
    size, _, channels, filters = kernel.shape
    reach = -(-(size - 1) // (2 * p))  # in patches, each way
    patches = 2 * reach + 1
    side = patches * p
    pixels = np.zeros((side, side, channels, p, p, filters), kernel.dtype)
    first = reach * p - (size - 1) // 2
    for y, x in np.ndindex(p, p):  # pixels of the central patch
        rows, columns = (slice(first + start, first + start + size) for start in (y, x))
        pixels[rows, columns, :, y, x] = kernel
    pixels = pixels.reshape(patches, p, patches, p, channels, -1)
    pixels = pixels.transpose(0, 2, 1, 3, 4, 5)  # (K', K', P, P, C, P·P·filters)
    return pixels.reshape(patches, patches, p * p * channels, -1)
