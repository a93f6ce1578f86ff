"""Finds the image size that the weights of a checkpoint were made for."""

import math
from typing import Any

from kerasvit.arguments import sides
from kerasvit.checkpoints import CheckpointError, Description, printable
from kerasvit.layers.position_embedding import table_grid


def source_size_of(
    description: Description,
    kwargs: dict[str, Any],
    trained: dict[str, Any],
    source_grid: tuple[int, int] | None,
) -> tuple[int, int]:
    """Returns (height, width) in pixels that the weights were made for.

    Args:
        description: What the checkpoint says.
        kwargs: Arguments of the builder, those of the caller included.
        trained: Those that the weights were trained with.
        source_grid: (height, width) in patches that the caller stated, or None.

    Raises:
        CheckpointError: The table of positions does not fit what the files state, or
            leaves it open.
    """
    stated, grid = description.image_size, description.grid
    # The windows of a Swin tell its image size.
    windows = description.arguments.get("image_size")
    likely = stated or windows or description.transform_size
    if grid is None:
        height, width = sides(likely or trained["image_size"])
        return height, width
    positions = kwargs.get("positions", "tokens")
    cells, partial = grid.cells(positions), bool(kwargs.get("partial_patches"))
    if likely and not source_grid:
        if math.prod(cells_of(likely, grid.stride, partial)) == cells:
            return tuple(likely)
    hint = ""
    if "positions" in kwargs:
        hint = (
            f" Counted with positions={positions!r}: give another `positions` if class "
            "and register tokens have rows, or none."
        )
    name = f"{printable(grid.tensor)} of {description.path}"
    if stated and not source_grid:
        raise CheckpointError(
            f"{name} has {cells} patch rows, of {grid.stride} × {grid.stride} pixels "
            f"each, and its configuration says images of {stated[0]} × {stated[1]}. "
            f"Correct that, or give `source_grid`.{hint}"
        )
    try:
        found = table_grid(
            cells,
            own_grid=cells_of(kwargs["image_size"], grid.stride, partial),
            source_grid=source_grid,
            name=name,
        )
    except ValueError as error:
        raise CheckpointError(f"{error}{hint}") from error
    return found[0] * grid.stride, found[1] * grid.stride


def cells_of(image_size: Any, stride: int, partial: bool) -> tuple[int, int]:
    """Returns (height, width) of an image in patches.

    Args:
        image_size: (height, width) in pixels.
        stride: Pixels from one patch to the next.
        partial: Whether pixels that fill no patch are left out; else they make one.
    """
    height, width = sides(image_size)
    if partial:
        return height // stride, width // stride
    return -(-height // stride), -(-width // stride)
