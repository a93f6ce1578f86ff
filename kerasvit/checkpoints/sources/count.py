"""Counts of the blocks and stages in tensor names."""

from ..reader import CheckpointError
from ..shapes import Shapes

MAX_STAGES = 32  # each halves the map: 32 stages need images of 2³² pixels


def count(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns how many consecutive numbers from `start` on occur in a name pattern."""
    numbers = range(start, len(shapes) + start + 1)
    return next(i for i in numbers if pattern.format(i) not in shapes) - start


def count_stages(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns the number of stages; the arguments are those of `count`.

    Raises:
        CheckpointError: There are more than `MAX_STAGES`.
    """
    stages = count(shapes, pattern, start)
    if stages > MAX_STAGES:
        raise CheckpointError(
            f"it has {stages} stages; models have at most {MAX_STAGES}. This is not "
            "a file of model weights."
        )
    return stages
