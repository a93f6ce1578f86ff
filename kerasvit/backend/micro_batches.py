"""Micro-batches: parts of a device's batch with separate gradients."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasvit.typing import Tensor

from .masks import joined, masks_of
from .stateless import batch_size
from .update import Update, add_part


class MicroBatches:
    """Splits the batch of a train step; a base of `Step`.

    Attributes:
        micro_batches: Number of parts of each device's batch. They are computed one
            after the other.
    """

    micro_batches = 1

    def in_parts(
        self,
        update: Callable[[Any, Any], tuple[Update, Any]],
        batch: Any,
        metrics: Any,
        device: Any = 0,
    ) -> tuple[Update, Any]:
        """Sums the updates of all parts of a device's batch.

        Args:
            update: Function of a part of the batch and the part's number over all
                devices. It returns an `Update` and the outputs.
            batch: Inputs, targets and sample weights.
            metrics: Function that returns the values of the metrics' variables before
                the step. It is called after the first part, which may create metrics.
            device: Number of the device.

        Returns:
            `Update` and outputs for the whole batch.
        """
        parts: int = self.micro_batches
        total: Update | None = None
        outputs: list = []
        if parts == 1:
            return update(batch, device)
        samples = batch_size(batch)
        if isinstance(samples, int):
            parts = min(parts, samples)
        for i in range(parts):
            first, last = bound(samples, parts, i), bound(samples, parts, i + 1)
            piece = _piece(batch, first, last, samples)
            if total is not None:
                piece = self.after(total, piece)
            one, y_pred = update(piece, device * self.micro_batches + i)
            total = add_part(total, one, (last - first) / samples, metrics())
            del one  # frees memory before the next part
            masks = masks_of(y_pred)
            outputs.append(_piece((y_pred, masks), 0, last - first))
        if total is None:
            raise ValueError("A batch must have at least one sample. Received: none.")
        return total, joined(outputs)

    def after(self, total: Update, piece: Any) -> Any:
        """Returns a part of the batch such that it is computed after `total`."""
        return piece


def _piece(batch: Any, first: Any, last: Any, samples: Any = 0) -> Any:
    if not isinstance(samples, int):
        # Layers fail on an empty batch, so an empty part gets the last sample. Its
        # share of the total is 0.
        first = ops.minimum(first, samples - 1)
        last = ops.maximum(last, first + 1)

    def cut(value: Tensor | None) -> Tensor | None:
        return value if value is None else value[first:last]

    return keras.tree.map_structure(cut, batch)


def bound(samples: Any, parts: int, i: int) -> Any:
    """Returns the first sample of part i; the first parts may have one sample more."""
    rest = samples % parts
    early = min(i, rest) if isinstance(samples, int) else ops.minimum(i, rest)
    return i * (samples // parts) + early


def seed_shifts(variables: list[keras.Variable], part: Any) -> dict[int, Tensor]:
    """Returns offsets of seeds, so that the parts of a batch draw different masks.

    Args:
        variables: Variables, some of which are seeds.
        part: Number of the part, over all devices: the offsets do not depend on the
            device that computes the part.

    Returns:
        {index of the variable: tensor}, empty for part 0.
    """
    if isinstance(part, int) and part == 0:
        return {}
    # A multiple of a large number, because the next integers may be seeds of other
    # layers.
    shift = ops.convert_to_tensor(part * 0x3C6EF372 & 0x7FFFFFFF)
    return {
        i: ops.cast(ops.stack([shift, 0 * shift]), variable.dtype)
        for i, variable in enumerate(variables)
        if variable.name == "seed_generator_state"
    }
