"""Converts a convolution to an equal attention layer.

Cordonnier et al. 2020, arXiv 1911.03584, of pixels, and Li et al. 2021,
arXiv 2111.01353, of patches.
"""

import numpy as np
from keras import ops


def set_convolution(attention, kernel, bias=None, *, sharpness: float = 1e4):
    """Sets attention to a convolution of stride 1 and padding "same".

    Each of the K² heads looks at one shift, and multiplies what it finds by the matrix
    that the kernel has there. Theorem 1 of the paper states it for K² heads of size D_h
    and min(D_h, filters) output channels; as that matrix has no rank above C, a
    `head_dim` of C does for more of them too. A shift out of the map has to find zeros:
    the paper pads the image by K // 2, and so does `padding`. For an even K, "same"
    reaches one cell further down and right than up and left.

    Args:
        attention: Built `RelativeAttention` or `QuadraticAttention` with K² heads of
            size min(C, filters) or more and a padding of K // 2 or more. Its queries
            and keys, if any, become zero.
        kernel: (K, K, C, filters), as `keras.layers.Conv2D` has it.
        bias: (filters,); None: zeros.
        sharpness: How far the score of a head's shift is above that of the next. 1e4
            leaves the others a weight of 0, but no gradient to the positions; some 5 is
            a soft start for training.

    Raises:
        ValueError: The attention is not built, or cannot be this convolution; says why.
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
    cells = np.stack(np.mgrid[:size, :size], axis=-1).reshape(-1, 2)
    attention.look_at(cells - (size - 1) // 2, sharpness)
    value, output = _factors(kernel, attention.head_dim)
    attention.value.kernel.assign(value)
    attention.output_dense.kernel.assign(output)
    attention.output_dense.bias.assign(bias)
    if attention.key_dim:
        for dense in (attention.query, attention.key):
            dense.kernel.assign(np.zeros(dense.kernel.shape))


def _factors(kernel, head_dim):
    """Factors each head's matrix into value and output kernels."""
    channels, filters = kernel.shape[2:]
    matrices = kernel.reshape(-1, channels, filters)  # (heads, C, filters)
    value = np.zeros((channels, len(matrices), head_dim), kernel.dtype)
    output = np.zeros((len(matrices), head_dim, filters), kernel.dtype)
    if channels <= filters:  # one of the two is the matrix, the other passes on
        value[:, :, :channels] = np.eye(channels)[:, None]
        output[:, :channels] = matrices
    else:
        value[:, :, :filters] = matrices.transpose(1, 0, 2)
        output[:, :filters] = np.eye(filters)
    return value.reshape(channels, -1), output.reshape(-1, filters)


def _check(attention, kernel):
    if not attention.built:
        raise ValueError(
            "The attention must be built first, for its map: "
            "`attention.build((None, height, width, channels))`."
        )
    if kernel.ndim != 4 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(
            "`kernel` must be (K, K, channels, filters), of a square convolution. "
            f"Received: shape {kernel.shape}."
        )
    size, _, *wanted = kernel.shape
    had = [attention.value.kernel.shape[0], attention.filters]
    if wanted != had:
        raise ValueError(
            f"`kernel` must be of {had[0]} channels and {had[1]} filters, as the "
            f"attention is. Received: shape {kernel.shape}."
        )
    needs = {
        "num_heads": (attention.num_heads == size**2, f"{size**2}"),
        "head_dim": (attention.head_dim >= min(had), f"{min(had)} or more"),
        "padding": (attention.padding >= size // 2, f"{size // 2} or more"),
    }
    for name, (enough, need) in needs.items():
        if not enough:
            raise ValueError(
                f"A {size} × {size} convolution of {had[0]} channels to {had[1]} needs "
                f"attention with `{name}` {need}. Received: "
                f"{name}={getattr(attention, name)}."
            )


def kernel_of_patches(kernel, patch_size: int) -> np.ndarray:
    """Returns the kernel over patches that equals a convolution over pixels.

    A patch is one cell of P·P·C channels: its rows, their pixels, their colours, as
    `PatchEmbedding` flattens it. Attention over patches that is to be the pixels'
    convolution therefore needs (2 ⌈(K − 1) / 2P⌉ + 1)² heads, the number of theorem 1
    of arXiv 2111.01353: K² for pixels and odd K, 9 for every K from 2 to 2 P + 1.

    Args:
        kernel: (K, K, C, filters), of the pixels, for stride 1 and padding "same".
        patch_size: P, in pixels.

    Returns:
        (K', K', P·P·C, P·P·filters) array, K' = 2 ⌈(K − 1) / 2P⌉ + 1. The bias is that
        of the pixels P·P times over.

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
    for y, x in np.ndindex(p, p):  # where a pixel of the patch in the middle looks
        rows, columns = (slice(first + start, first + start + size) for start in (y, x))
        pixels[rows, columns, :, y, x] = kernel
    pixels = pixels.reshape(patches, p, patches, p, channels, -1)
    pixels = pixels.transpose(0, 2, 1, 3, 4, 5)  # (K', K', P, P, C, P·P·filters)
    return pixels.reshape(patches, patches, p * p * channels, -1)
