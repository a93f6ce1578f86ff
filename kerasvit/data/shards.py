"""The rows of each batch that one of several processes makes."""

import dataclasses

from kerasvit.types import Tensor


@dataclasses.dataclass(frozen=True)
class Rows:
    """Contiguous rows of the batches of a training or an evaluation.

    Attributes:
        batch_size: Number of rows of the global batch.
        first, last: The rows that a process yields, from `first` to before `last`.
        pairs: Whether rows 2j and 2j + 1 are read together, for `mixing.py`.
        repeats: Number of rows of a batch that hold the same example.
    """

    batch_size: int = 1
    first: int = 0
    last: int = 1
    pairs: bool = False
    repeats: int = 1

    @classmethod
    def of(
        cls,
        batch_size: int,
        shard: tuple[int, int],
        pairs: bool = False,
        repeats: int = 1,
    ) -> "Rows":
        """Returns the rows of process i of n.

        Raises:
            ValueError: `shard` is not (i, n) with 0 <= i < n, or `batch_size` is not a
                multiple of n.
        """
        i, n = shard
        if not 0 <= i < n:
            raise ValueError(
                f"`shard` must be (i, n) with 0 <= i < n. Received: {shard}."
            )
        if batch_size % n:
            below = batch_size // n * n
            nearest = f"{below} or {below + n}" if below else f"{n}"
            raise ValueError(
                f"`batch_size` must be a multiple of the {n} processes that share a "
                f"batch: take {nearest}. Received: {batch_size}."
            )
        count = batch_size // n
        return cls(batch_size, i * count, (i + 1) * count, pairs, repeats)

    @property
    def examples(self) -> int:
        """Number of different examples of a batch.

        Row i holds example i modulo this number, so that neighbours, which are mixed,
        differ. If `repeats` does not divide the batch, the last examples are in one row
        less.
        """
        return -(-self.batch_size // self.repeats)

    @property
    def read(self) -> slice:
        """Rows of the global batch that are read, with the partners for mixing."""
        if not self.pairs:
            return slice(self.first, self.last)
        last = min(self.last + self.last % 2, self.batch_size)
        return slice(self.first - self.first % 2, last)

    @property
    def count(self) -> int:
        """Number of rows that are read."""
        return self.read.stop - self.read.start

    @property
    def kept(self) -> slice:
        """Rows of those read that are yielded."""
        return slice(self.first - self.read.start, self.last - self.read.start)

    @property
    def partners(self) -> list[int]:
        """For each row that is read, the one that it is mixed with, among these."""
        pairs = (row + 1 if row % 2 == 0 else row - 1 for row in range(self.count))
        return [min(partner, self.count - 1) for partner in pairs]

    def among(self, count: int) -> int:
        """Returns how many of the first `count` examples are read."""
        batches, rest = divmod(count, self.batch_size)
        rest = min(max(rest - self.read.start, 0), self.count)
        return batches * self.count + rest

    def number(self, i: Tensor) -> Tensor:
        """Returns the number, in the global order, of the example in the i-th row."""
        row = self.read.start + i % self.count
        return i // self.count * self.examples + row % self.examples

    def holds(self, number: Tensor) -> Tensor:
        """Whether the example of a number in the global order is read."""
        return (number - self.read.start) % self.examples < self.count

    @property
    def places(self) -> list[int]:
        """For each row that is read, which of the examples that are read it has."""
        rows = range(self.read.start, self.read.stop)
        examples = [row % self.examples for row in rows]
        held = sorted(set(examples))
        return [held.index(example) for example in examples]
