"""`Shapes`: the names and shapes of a checkpoint's tensors."""

from typing import Any, NoReturn

from .quoting import printable
from .reader import CheckpointError


class Shapes(dict[str, tuple[int, ...]]):
    """{name: shape} of tensors; a tensor that is missing or of another rank raises.

    A checkpoint may come from anywhere, so a source looks its tensors up here.

    Raises:
        CheckpointError: By `shapes[name]` and the methods, where the tensor is not as
            asked for.
    """

    def __missing__(self, name: str) -> NoReturn:
        raise CheckpointError(
            f"it is not a whole model: the tensor {name} is missing. Take the complete "
            "file."
        )

    def of(self, name: str, rank: int) -> tuple[int, ...]:
        """Returns a shape with `rank` sides, none of them 0."""
        shape = self[name]
        if len(shape) != rank or 0 in shape:
            raise CheckpointError(
                f"it is not a whole model: {printable(name)} must have {rank} sides, "
                f"none of them 0. Received: the shape {tuple(shape)}. Take the "
                "complete file."
            )
        return shape

    def side(self, name: str, axis: int, rank: int, default: int | None = None) -> Any:
        """Returns one side of a tensor of `rank` sides; `default` if it is missing."""
        return self.of(name, rank)[axis] if name in self else default
