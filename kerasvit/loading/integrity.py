"""Hash check of a checkpoint while its tensors are read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kerasvit.checkpoints import Checkpoint, CheckpointError, former_save


@contextmanager
def checked_while_read(checkpoint: Checkpoint) -> Iterator[None]:
    """Context manager that checks the SHA-256 of a checkpoint while it is read.

    A second thread hashes the open file, which takes about a second for 1 to 2 GB.
    Meanwhile the block can load the tensors from the same file.

    Raises:
        CheckpointError: The hash differs from that of an earlier check of the file, or
            from the hash in the config.json beside it.
    """
    stated = checkpoint.stated_sha256
    if not (stated or checkpoint.known_hash):
        yield
        return
    with ThreadPoolExecutor(1) as other:
        hashing = other.submit(checkpoint.sha256)
        try:
            yield
        finally:  # a wrong hash replaces other errors, because it explains them
            _compare(checkpoint, hashing.result(), stated)


def _compare(checkpoint: Checkpoint, found: str, written: str) -> None:
    path, folder = checkpoint.path, checkpoint.path.parent
    if checkpoint.known_hash not in (None, found):
        raise CheckpointError(
            f"{path} is not the file that was checked before: its hash is {found} "
            f"instead of {checkpoint.known_hash}. It was replaced or damaged: load it "
            "again."
        )
    if written not in ("", found):
        raise CheckpointError(
            f"{path} does not match the config.json beside it: its hash is {found} "
            f"instead of {written}. A save was stopped between the two files, or they "
            "come from two saves: save the model again, or use both files of one save. "
            "Only if you changed the tensors yourself, remove `weights_sha256` from "
            f"config.json.{former_save(folder)}"
        )
