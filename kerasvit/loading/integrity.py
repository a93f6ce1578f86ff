"""Checks the hash of a checkpoint while its tensors are read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kerasvit.checkpoints import Checkpoint, CheckpointError, former_save


@contextmanager
def checked_while_read(checkpoint: Checkpoint) -> Iterator[None]:
    """Context that checks the SHA-256 of a checkpoint while it is read.

    The file is hashed, which takes a second for 1 or 2 GB; meanwhile the tensors can
    be loaded from the same open file.

    Raises:
        CheckpointError: The file is not the one that was checked before it was opened,
            or not the one that config.json beside it is of.
    """
    written = checkpoint.stated_sha256
    if not (written or checkpoint.checked):
        yield
        return
    with ThreadPoolExecutor(1) as other:
        hashing = other.submit(checkpoint.sha256)
        try:
            yield
        finally:  # in place of other errors: what is wrong explains them
            _compare(checkpoint, hashing.result(), written)


def _compare(checkpoint: Checkpoint, found: str, written: str) -> None:
    path, folder = checkpoint.path, checkpoint.path.parent
    if checkpoint.checked not in (None, found):
        raise CheckpointError(
            f"{path} is not the file that was checked before: its hash is {found} in "
            f"place of {checkpoint.checked}. It was replaced or damaged: load it again."
        )
    if written not in ("", found):
        raise CheckpointError(
            f"{path} is not what config.json beside it is of: its hash is {found} in "
            f"place of {written}. A save was stopped between the two files, or they "
            "are of two saves: save the model again, or take both files from one save. "
            "Only if you changed the tensors yourself, remove `weights_sha256` from "
            f"config.json.{former_save(folder)}"
        )
