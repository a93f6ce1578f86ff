"""Counts the blocks and stages that tensor names have."""

from ..reader import CheckpointError
from ..shapes import Shapes

MOST_STAGES = 32  # each halves the map: sides of more than 2³² pixels have no use


def count(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns how many names have `start`, the next, … in the braces of a pattern."""
    numbers = range(start, len(shapes) + start + 1)
    return next(i for i in numbers if pattern.format(i) not in shapes) - start


def count_stages(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns the number of stages, as `count`.

    Raises:
        CheckpointError: There are too many to compute with.
    """
    stages = count(shapes, pattern, start)
    if stages > MOST_STAGES:
        raise CheckpointError(
            f"it has {stages} stages; models have at most {MOST_STAGES}. It is no file "
            "of model weights."
        )
    return stages
