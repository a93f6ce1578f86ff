"""The grid of a model's patches, and distances between patches in pixels."""

from collections.abc import Iterable
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
    Of the grids of a model's stages it is the largest that fits.

    Raises:
        ArgumentError: There is no such grid.
    """
    layers = [given] if given else [_grid(m, image_size) for m in layers_in(model)]
    layers += [] if given else [*_halved(model, image_size)]
    grids = {tuple(each) for each in layers if isinstance(each, (tuple, list))}
    largest = largest_grid(grids, tokens)
    if largest and tokens - largest[0] * largest[1] <= MAX_PREFIX:
        return largest
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


def largest_grid(
    grids: Iterable[tuple[int, int]], tokens: int
) -> tuple[int, int] | None:
    """Returns the grid with the most cells, of which there are at most `tokens`.

    None if no grid fits, or two with the same number of cells.
    """
    cells = {grid: grid[0] * grid[1] for grid in grids if grid[0] * grid[1] <= tokens}
    most = [grid for grid, count in cells.items() if count == max(cells.values())]
    return most[0] if len(most) == 1 else None


def _grid(layer: keras.layers.Layer, image_size: tuple[int | None, ...]) -> Any:
    """Returns the attribute `grid` of a layer; for images of any size the image's."""
    grid, patch_size = (getattr(layer, key, None) for key in ("grid", "patch_size"))
    if grid is None or patch_size is None or None in image_size:
        return grid
    return whole_patches(image_size, patch_size)


def _halved(
    model: keras.Model, image_size: tuple[int | None, ...]
) -> dict[tuple[int, int], int]:
    """Returns {grid: pixels between cells} of overlapping patches, and of its halves.

    It is empty for a model without such patches, or images of unknown size.
    """
    layers = (m for m in layers_in(model) if hasattr(m, "patch_size"))
    first = next((m for m in layers if hasattr(m, "stride")), None)
    if first is None or None in image_size:
        return {}
    height, width = first.compute_output_shape((None, *image_size, None))[1:3]
    pitches = {(height, width): first.stride}
    while max(height, width) > 1:
        height, width = -(-height // 2), -(-width // 2)
        pitches[height, width] = first.stride * 2 ** len(pitches)
    return pitches


def extent(
    model: keras.Model, grid: tuple[int, int], image_size: tuple[int, int]
) -> tuple[int, int]:
    """Returns (height, width) of a grid in pixels: the image's for most models.

    Where patches overlap, the last one reaches beyond its cell.
    """
    pitch = _halved(model, image_size).get(grid)
    return image_size if pitch is None else (grid[0] * pitch, grid[1] * pitch)


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
