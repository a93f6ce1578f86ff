"""Resamples a grid of vectors or an image with one matrix per side."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from keras import ops

from kerasvit.arguments import integer, one_of
from kerasvit.types import Tensor

# No model has a table of more cells: a larger one comes from a hostile file.
MAX_CELLS = 2**18
# The matrices below are computed by `xp`: NumPy, or `keras.ops` where the number of
# target cells is a tensor.
Weight: TypeAlias = Callable[[Any, Any], Any]  # of distances in cells, and `xp`


def _triangle(x: Any, xp: Any) -> Any:
    return xp.maximum(1 - xp.abs(x), 0)


def _cubic(x: Any, xp: Any, a: float) -> Any:
    """Keys' cubic convolution kernel, zero from |x| = 2 on."""
    x = xp.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0))


def indices(count: Any, xp: Any) -> Any:
    """Returns 0, 1, 2 … as a column of floats, computed by `xp`."""
    indices = xp.arange(count)[:, None]
    return indices + 0.0 if xp is np else xp.cast(indices, "float32")


def _taps(position: Any, source: int, weight: Weight, reach: int, xp: Any) -> Any:
    """Returns rows of weights for the cells around positions; border cells repeat.

    `reach` is the number of cells on either side where `weight` is not 0.
    """
    cells = xp.floor(position) + np.arange(1 - reach, reach + 1, dtype="float32")
    weights = weight(position - cells, xp)  # (target, 2 · reach)
    cells = xp.clip(cells, 0, source - 1)
    if xp is ops:
        places = ops.one_hot(ops.cast(cells, "int32"), source)
        return ops.sum(weights[:, :, None] * places, axis=1)
    matrix = np.zeros((len(position), source))
    rows = np.arange(len(position))[:, None]
    np.add.at(matrix, (rows, cells.astype(int)), weights)
    return matrix


def _corner_linear(source: int, target: Any, xp: Any) -> Any:
    step = (source - 1) / xp.maximum(target - 1, 1)
    position = xp.minimum(indices(target, xp) * step, source - 1)
    return _taps(position, source, _triangle, 1, xp)


def _half_pixel(source: int, target: Any, xp: Any) -> Any:
    """Returns the centres of `target` cells in indices of `source` cells, a column."""
    return (indices(target, xp) + 0.5) * source / target - 0.5


def _plain(source: int, target: Any, weight: Weight, reach: int, xp: Any) -> Any:
    return _taps(_half_pixel(source, target, xp), source, weight, reach, xp)


def _antialias(source: int, target: Any, weight: Weight, xp: Any) -> Any:
    # To shrink, the kernel is stretched over all the cells that one target cell
    # replaces. It is cut off at the border and normalised to a sum of one.
    stretch = xp.maximum(source / target, 1)
    distance = _half_pixel(source, target, xp) - np.arange(source, dtype="float32")
    matrix = weight(distance / stretch, xp)
    return matrix / xp.sum(matrix, axis=1, keepdims=True)


def _geometric_linear(source: int, target: Any, xp: Any) -> Any:
    # The distances between source cells are 1, q, q² … from the centre outwards, with
    # the q for which the outermost cells of source and target coincide. In float64,
    # because an error of q shifts all cells.
    exact = np.float64 if xp is np else functools.partial(ops.cast, dtype="float64")
    reach = (exact(target) - 1) / 2
    low, high = 0 * reach + 1.01, 0 * reach + 1.5
    for _ in range(19):  # as timm: until they differ by less than 1e-6
        q = (low + high) / 2
        beyond = (q ** ((source - 1) // 2) - 1) / (q - 1) > reach
        low, high = xp.where(beyond, low, q), xp.where(beyond, q, high)
    steps = np.arange(source) - (source - 1) / 2
    cells = (q ** np.abs(steps) - 1) / (q - 1) * np.sign(steps)
    targets = exact(indices(target, xp)) - reach
    # How much of the way from each cell to the next one lies before a target.
    passed = xp.clip((targets - cells[:-1]) / (cells[1:] - cells[:-1]), 0, 1)
    ends = 0 * targets + 1, 0 * targets
    before = xp.concatenate([ends[0], passed], axis=1)
    return before - xp.concatenate([passed, ends[1]], axis=1)


# Cubic coefficients: torch uses -0.5 with antialiasing (as Pillow), -0.75 without
# (aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp).
_pillow, _torch = (functools.partial(_cubic, a=a) for a in (-0.5, -0.75))
KERNELS: dict[str, Callable[[int, Any, Any], Any]] = {
    "corner_linear": _corner_linear,
    "bicubic_antialias": lambda s, t, xp: _antialias(s, t, _pillow, xp),
    "bicubic": lambda s, t, xp: _plain(s, t, _torch, 2, xp),
    "bilinear_antialias": lambda s, t, xp: _antialias(s, t, _triangle, xp),
    "bilinear": lambda s, t, xp: _plain(s, t, _triangle, 1, xp),
    "geometric_linear": _geometric_linear,
}


def resampling_matrix(source: int, target: int, kernel: str) -> np.ndarray:
    """Returns the (target, source) matrix that resamples a row of cells.

    Each row sums to one; equal sizes give the identity, except "geometric_linear".

    Args:
        source: Present number of cells, ≥ 1.
        target: New number of cells, ≥ 1.
        kernel: One of `KERNELS`:
            "corner_linear": linear, the outermost cells coincide. Google's ViT
                (vit_jax/checkpoint.py `interpolate_posembed`, which calls
                scipy.ndimage.zoom of order 1) and big_vision (models/vit.py). For a
                few sizes, such as 32 → 16, scipy rounds past the last cell and returns
                zeros there; this function returns the last cell.
            "bicubic_antialias": timm (layers/pos_embed.py `resample_abs_pos_embed`).
            "bicubic": without antialiasing; transformers
                (models/vit/modeling_vit.py `interpolate_pos_encoding`).
            "bilinear_antialias": the same functions of timm and torch, bilinear.
            "bilinear": half-pixel centres, no antialiasing, the border repeated;
                tf.image.resize as Google's ViT uses it (vit_jax/input_pipeline.py).
            "geometric_linear": for tables of relative positions, whose centre is the
                position 0: linear between cells at geometric distances from it; timm
                (layers/pos_embed_rel.py `resize_rel_pos_bias_table`, after BEiT). As
                there, a side that keeps its size changes slightly, because its
                distances grow too.

    Returns:
        Float64 array.

    Raises:
        ValueError: A size is not a positive whole number, or the kernel is unknown.
    """
    one_of("kernel", kernel, tuple(KERNELS))
    cells = "a number of cells"
    source = integer("source", source, 1, meaning=cells)
    return KERNELS[kernel](source, integer("target", target, 1, meaning=cells), np)


def spreading_matrix(source: int, target: int, kernel: str) -> np.ndarray:
    """Returns the (target, source) matrix that distributes weights of a sum.

    Each column sums to one: the parts of a divided cell share its weight, as smoothly
    as the kernel; the weights of merged cells are added. A weighted sum over the cells
    of a constant signal does not change, and that of a smooth signal hardly does. Equal
    sizes give the identity.

    For a growing grid it equals `resampling_matrix` times source / target, except near
    the border.

    Args: those of `resampling_matrix`.

    Returns:
        Float64 array.
    """
    if target < source:
        # The transposed growing matrix: no kernel skips cells there.
        return resampling_matrix(target, source, kernel).T
    matrix = resampling_matrix(source, target, kernel)
    return matrix / matrix.sum(axis=0)


def pseudo_inverse_matrix(source: int, target: int, kernel: str) -> np.ndarray:
    """Returns the (target, source) matrix that resamples the kernel of patches.

    It is (Bᵀ)⁺ for the `resampling_matrix` B, which resamples a patch. Products of a
    patch and a kernel do not change if both grow, and change least if both shrink.

    Args: those of `resampling_matrix`.

    Returns:
        Float64 array.

    Reference: Beyer et al. 2023, "FlexiViT", arXiv 2212.08013, section 3.4.
    """
    return np.linalg.pinv(resampling_matrix(source, target, kernel)).T


def resample_grid(grid: np.ndarray, size: tuple[int, int], kernel: str) -> np.ndarray:
    """Resamples a grid of vectors to `size` (height, width), one matrix per side.

    A grid of that size is returned unchanged.

    Shape: (H, W, ...) → (h, w, ...), the same dtype; computed in float64.

    Args:
        grid: Array of floats.
        size: (h, w), in cells.
        kernel: One of `KERNELS`; see `resampling_matrix`.

    Raises:
        ValueError: The grid has fewer than two axes or is not of a floating dtype, a
            size is not positive, or the kernel is unknown.
    """
    return _each_side(grid, size, kernel, resampling_matrix)


def spread_grid(grid: np.ndarray, size: tuple[int, int], kernel: str) -> np.ndarray:
    """Distributes weights of a sum over the cells of another grid.

    Same as `resample_grid` with `spreading_matrix` in place of `resampling_matrix`: the
    sum over all cells does not change.
    """
    return _each_side(grid, size, kernel, spreading_matrix)


def resample_patches(
    grid: np.ndarray, size: tuple[int, int], kernel: str
) -> np.ndarray:
    """Resamples the kernel of a patch embedding to patches of another size.

    Same as `resample_grid` with `pseudo_inverse_matrix` in place of
    `resampling_matrix`. With "bicubic_antialias" it equals timm's
    `resample_patch_embed`, because the pseudo-inverse of a Kronecker product is that of
    its factors.
    """
    return _each_side(grid, size, kernel, pseudo_inverse_matrix)


def _each_side(
    grid: np.ndarray,
    size: tuple[int, int],
    kernel: str,
    matrix: Callable[[int, int, str], np.ndarray],
) -> np.ndarray:
    if grid.ndim < 2 or grid.dtype.kind in "biu":
        raise ValueError(
            "`grid` must be an array of floats of shape (height, width, ...). "
            f"Received: shape {grid.shape}, dtype {grid.dtype}."
        )
    height, width = size
    if grid.shape[:2] == (height, width):
        return grid
    if grid[0, 0].size > 1 and not any(grid.strides[2:]):
        # One number per cell, broadcast without memory, as in outlines of tensors.
        cell: Any = (..., *[slice(1)] * (grid.ndim - 2))
        first = grid[cell]
        first = _each_side(first, size, kernel, matrix)
        return np.broadcast_to(first, (height, width, *grid.shape[2:]))
    out = _contract(grid, matrix(grid.shape[0], height, kernel))
    out = out.swapaxes(0, 1)
    out = _contract(out, matrix(grid.shape[1], width, kernel))
    return np.ascontiguousarray(out.swapaxes(0, 1)).astype(grid.dtype)


def _contract(array: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    # Only rows with a weight become float64: a photo that is shrunk without
    # antialiasing uses few of its thousands of rows.
    used = matrix.any(axis=0)
    return np.tensordot(matrix[:, used], array[used].astype("float64"), axes=1)


def resample_tensor(grid: Tensor, size: tuple[Any, Any], kernel: str) -> Tensor:
    """Resamples a grid of vectors as `resample_grid` does, in the model's graph.

    It costs two small matrix products, through which gradients flow. The matrices are
    computed by NumPy once for each size, or, for a size that is known only when the
    graph of TensorFlow runs, in that graph.

    Shape: (H, W, D) → (h, w, D), the same dtype. A grid of that size stays unchanged.

    Args:
        grid: Tensor of float32 or float64.
        size: (h, w), in cells, integers or tensors.
        kernel: One of `KERNELS`.
    """
    height, width, channels = grid.shape
    known = all(isinstance(side, int) for side in size)
    if known and tuple(size) == (height, width):
        return grid
    down, across = (
        ops.cast(_matrix(source, target, kernel), grid.dtype)
        for source, target in zip((height, width), size, strict=True)
    )
    if not known and kernel == "geometric_linear":  # no identity for an equal side
        same = ops.logical_and(ops.equal(size[0], height), ops.equal(size[1], width))
        down, across = (
            ops.where(same, ops.eye(*ops.shape(each), dtype=each.dtype), each)
            for each in (down, across)
        )
    rows = ops.matmul(down, ops.reshape(grid, (height, width * channels)))
    return ops.matmul(across, ops.reshape(rows, (-1, width, channels)))


def _matrix(source: int, target: Any, kernel: str) -> Any:
    if isinstance(target, int):
        return _known_matrix(source, target, kernel)
    return KERNELS[kernel](source, ops.cast(target, "float32"), ops)


_known_matrix = functools.lru_cache(maxsize=64)(resampling_matrix)
