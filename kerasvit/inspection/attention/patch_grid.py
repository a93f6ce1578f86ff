"""The grid of a model's patches, and distances between patches in pixels."""

from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, Size, whole_patches
from kerasvit.backend.keras_private import layers_in

MAX_PREFIX = 16  # class, distillation and register tokens


def given_grid(grid: Any) -> tuple[int, int] | None:
    """Checks the argument `grid`, (height, width) or None."""
    if grid is None:
        return None
    return Size.of(grid, "grid")


def patch_grid(
    model: keras.Model,
    tokens: int,
    image_size: tuple[int | None, ...],
    given: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Returns the grid of the patches among a number of tokens, which they end.

    It is `given`; else the attribute `grid` of a layer, which layers of position
    embeddings have, or the image's own grid if they take images of any size; else the
    grid of square patches that fill the image and leave the fewest tokens before them.

    Raises:
        ArgumentError: There is no such grid.
    """
    layers = [given] if given else [_grid(m, image_size) for m in layers_in(model)]
    grids = {tuple(each) for each in layers if isinstance(each, (tuple, list))}
    fits = [
        (rows, columns)
        for rows, columns in grids
        if 0 <= tokens - rows * columns <= MAX_PREFIX
    ]
    if len(fits) == 1:
        return fits[0]
    height, width = image_size
    if height and width and not given:
        for patches in range(tokens, max(tokens - MAX_PREFIX, 2) - 1, -1):
            for rows in range(1, patches + 1):
                columns = patches // rows
                whole = not (patches % rows or height % rows or width % columns)
                if whole and height // rows == width // columns:
                    return rows, columns
    raise ArgumentError(
        f"`grid` must be the (height, width) of the patches, which are the last of the "
        f"{tokens} tokens, after at most {MAX_PREFIX} others. Received: grid={given}, "
        f"for images of {height} × {width} pixels.",
        "grid",
    )


def _grid(layer: keras.layers.Layer, image_size: tuple[int | None, ...]) -> Any:
    """Returns the attribute `grid` of a layer; for images of any size the image's."""
    grid, patch_size = (getattr(layer, key, None) for key in ("grid", "patch_size"))
    if grid is None or patch_size is None or None in image_size:
        return grid
    return whole_patches(image_size, patch_size)


def input_shape(model: keras.Model) -> tuple[int | None, ...]:
    """Returns (height, width, channels) of the images that a model is built for.

    None stands for unknown numbers.

    Raises:
        ArgumentError: The model has several inputs, or one that is not an image.
    """
    inputs = getattr(model, "inputs", None)  # functional models and Sequential
    if not inputs:
        return None, None, None
    if len(inputs) > 1 or len(inputs[0].shape) != 4:
        raise ArgumentError(
            "`model` must have one input (batch, height, width, channels). Received: "
            f"inputs of shapes {[tuple(each.shape) for each in inputs]}.",
            "model",
        )
    return tuple(inputs[0].shape[1:])


def pixel_distances(
    cells: np.ndarray, grid: tuple[int, int], image_size: tuple[int, int]
) -> np.ndarray:
    """Returns the distances between the centres of cells of each window, in pixels.

    A cell is a whole number of pixels high and wide, the nearest to the image's side
    over the grid's: a grid may leave out a border of the image, or pad it.

    Args:
        cells: (windows, n) indices of cells in the grid, row by row.
        grid: (height, width), in cells.
        image_size: (height, width), in pixels.

    Returns:
        (windows, n, n).
    """
    pitch = [round(side / count) for side, count in zip(image_size, grid, strict=True)]
    places = np.stack(np.divmod(cells, grid[1]), axis=-1) * pitch  # (windows, n, 2)
    return np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
