"""Resamples a grid of vectors or an image with one matrix per side."""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

# No model has a table of more cells: a larger one comes from a hostile file.
MAX_CELLS = 2**18
Weight: TypeAlias = Callable[[np.ndarray], np.ndarray]  # of a distance in cells


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel, zero from |x| = 2 on."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _taps(position: np.ndarray, source: int, weight: Weight, reach: int) -> np.ndarray:
    """Returns rows of weights for the cells around positions; border cells repeat.

    `reach` is the number of cells on either side where `weight` is not 0.
    """
    first = np.floor(position).astype(int)
    rows = np.arange(len(position))
    matrix = np.zeros((len(position), source))
    for offset in range(1 - reach, reach + 1):
        cell = first + offset
        np.add.at(matrix, (rows, np.clip(cell, 0, source - 1)), weight(position - cell))
    return matrix


def _corner_linear(source: int, target: int) -> np.ndarray:
    step = (source - 1) / (target - 1) if target > 1 else 0
    position = np.minimum(np.arange(target) * step, source - 1)
    return _taps(position, source, _triangle, 1)


def _half_pixel(source: int, target: int) -> np.ndarray:
    """Returns the centres of `target` cells in indices of `source` cells."""
    return (np.arange(target) + 0.5) * source / target - 0.5


def _plain(source: int, target: int, weight: Weight, reach: int) -> np.ndarray:
    return _taps(_half_pixel(source, target), source, weight, reach)


def _antialias(source: int, target: int, weight: Weight) -> np.ndarray:
    # To shrink, the kernel is stretched over all the cells that one target cell
    # replaces. It is cut off at the border and normalised to a sum of one.
    stretch = max(source / target, 1)
    distance = _half_pixel(source, target)[:, None] - np.arange(source)
    matrix = weight(distance / stretch)
    return matrix / matrix.sum(axis=1, keepdims=True)


def _geometric_linear(source: int, target: int) -> np.ndarray:
    # The distances between source cells are 1, q, q² … from the centre outwards, with
    # the q for which the outermost cells of source and target coincide.
    low, high, reach = 1.01, 1.5, (target - 1) // 2
    while high - low > 1e-6:
        q = (low + high) / 2
        if (q ** ((source - 1) // 2) - 1) / (q - 1) > reach:
            high = q
        else:
            low = q
    steps = np.arange(source) - (source - 1) / 2
    position = np.sign(steps) * (q ** np.abs(steps) - 1) / (q - 1)
    targets = np.arange(target) - (target - 1) / 2
    return np.stack([np.interp(targets, position, cell) for cell in np.eye(source)], 1)


# Cubic coefficients: torch uses -0.5 with antialiasing (as Pillow), -0.75 without
# (aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp).
KERNELS: dict[str, Callable[[int, int], np.ndarray]] = {
    "corner_linear": _corner_linear,
    "bicubic_antialias": lambda s, t: _antialias(s, t, lambda x: _cubic(x, -0.5)),
    "bicubic": lambda s, t: _plain(s, t, lambda x: _cubic(x, -0.75), 2),
    "bilinear_antialias": lambda s, t: _antialias(s, t, _triangle),
    "bilinear": lambda s, t: _plain(s, t, _triangle, 1),
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
    if kernel not in KERNELS:
        raise ValueError(
            f"`kernel` must be one of {', '.join(map(repr, KERNELS))}. "
            f"Received: kernel={kernel!r}."
        )
    source, target = _cells(source, "source"), _cells(target, "target")
    return KERNELS[kernel](source, target)


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


def _cells(number: Any, name: str) -> int:
    try:
        cells = operator.index(number)
    except TypeError:
        cells = 0
    if cells < 1:
        raise ValueError(
            f"`{name}` must be a number of cells, a whole number of at least 1. "
            f"Received: {name}={number!r}."
        )
    return cells


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
