"""The devices and the processes of a training."""

import contextlib
import dataclasses


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices and the processes of a training.

    Attributes:
        count: Number of devices of all processes, among which a batch is divided.
        process: Number of this process, from 0.
        processes: Number of processes.
    """

    count: int = 1
    process: int = 0
    processes: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes files."""
        return self.process == 0

    @property
    def shard(self) -> tuple[int, int]:
        """Argument `shard` of the functions of `batches.py`."""
        return self.process, self.processes

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the model is built and trained."""
        return contextlib.nullcontext()

    def wait(self, name: str) -> None:
        """Waits until all processes have called this with the same name."""

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true in one of the processes."""
        return condition


ONE = Devices()
