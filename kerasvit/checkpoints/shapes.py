"""`Shapes`: the names and shapes of a checkpoint's tensors."""

from typing import Any, NoReturn

from .quoting import printable
from .reader import CheckpointError


class Shapes(dict[str, tuple[int, ...]]):
    """{name: shape} of tensors, with checked access.

    A checkpoint is untrusted input, so sources read tensor shapes with these methods.

    Raises:
        CheckpointError: Raised by `shapes[name]` and the methods if a tensor is missing
            or has another rank.
    """

    def __missing__(self, name: str) -> NoReturn:
        raise CheckpointError(
            f"it is not a complete model: the tensor {name} is missing. Use the "
            "complete file."
        )

    def of(self, name: str, rank: int) -> tuple[int, ...]:
        """Returns a shape of the given rank without empty axes."""
        shape = self[name]
        if len(shape) != rank or 0 in shape:
            raise CheckpointError(
                f"it is not a complete model: {printable(name)} must have {rank} axes, "
                f"none of size 0. Received: the shape {tuple(shape)}. Use the complete "
                "file."
            )
        return shape

    def side(self, name: str, axis: int, rank: int, default: int | None = None) -> Any:
        """Returns the size of an axis of a tensor; `default` if it is missing."""
        return self.of(name, rank)[axis] if name in self else default
