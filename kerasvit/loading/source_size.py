"""The image size for which the weights of a checkpoint were trained."""

import math
from typing import Any

from kerasvit.arguments import sides
from kerasvit.checkpoints import CheckpointError, Description, printable
from kerasvit.layers.position_embedding import table_grid

from .request import Request


def source_size_of(
    description: Description,
    kwargs: dict[str, Any],
    trained: dict[str, Any],
    source_grid: tuple[int, int] | None,
) -> tuple[int, int]:
    """Returns (height, width) in pixels for which the weights were trained.

    Args:
        description: Description of the checkpoint.
        kwargs: Arguments of the builder, including those of the caller.
        trained: Arguments of the builder with which the weights were trained.
        source_grid: (height, width) in patches that the caller stated, or None.

    Raises:
        CheckpointError: The position table contradicts the configuration or does not
            determine the size.
    """
    stated, grid = description.image_size, description.grid
    # The image size of a Swin follows from its windows.
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
            f" This assumes positions={positions!r}. Pass `positions` to state whether "
            "class and register tokens have rows."
        )
    name = f"{printable(grid.tensor)} of {description.path}"
    if stated and not source_grid:
        raise CheckpointError(
            f"{name} has {cells} patch rows, of {grid.stride} × {grid.stride} pixels "
            f"each, but its configuration states images of {stated[0]} × {stated[1]}. "
            f"Correct the configuration, or pass `source_grid`.{hint}"
        )
    try:
        source = table_grid(
            cells,
            own_grid=cells_of(kwargs["image_size"], grid.stride, partial),
            source_grid=source_grid,
            name=name,
        )
    except ValueError as error:
        raise CheckpointError(f"{error}{hint}") from error
    return source[0] * grid.stride, source[1] * grid.stride


def cells_of(image_size: Any, stride: int, partial: bool) -> tuple[int, int]:
    """Returns the (height, width) of an image in patches.

    Args:
        image_size: (height, width) in pixels.
        stride: Distance between neighbouring patches in pixels.
        partial: Whether pixels that fill no patch are ignored. Otherwise they count as
            a patch.
    """
    height, width = sides(image_size)
    if partial:
        return height // stride, width // stride
    return -(-height // stride), -(-width // stride)


def with_resampling(
    kwargs: dict[str, Any], request: Request, size: Any, kernel: str
) -> dict[str, Any]:
    """Adds the argument `resampling` of a model for images of any size.

    Args:
        kwargs: Arguments of the builder.
        request: Arguments that the caller states.
        size: Image size of the position table.
        kernel: Kernel of the code base of the weights.
    """
    if "resampling" not in kwargs or "resampling" in request.arguments:
        return kwargs
    table = {"kernel": kernel, **(kwargs["resampling"] or {}), "image_size": size}
    if request.kernel:
        table["kernel"] = request.kernel
    return {**kwargs, "resampling": table}
