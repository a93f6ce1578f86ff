"""Micro-batches: a device's batch in parts, each with gradients of its own."""

import keras
from keras import ops

from .masks import joined, masks_of
from .stateless import batch_size
from .update import add_part


class MicroBatches:
    """Splits the batch of a train step; a base of `Step`.

    Attributes:
        micro_batches: Number of parts of each device's batch. They are computed one
            after the other.
    """

    micro_batches = 1

    def in_parts(self, update, batch, metrics, device=0):
        """Sums the updates of all parts of a device's batch.

        Args:
            update: Function of a part of the batch and its number over all devices:
                an `Update` and the outputs.
            batch: Inputs, targets and weights of the samples.
            metrics: Function that returns the values before the step, one a metric's
                variable. It is asked after the first part, which may make metrics.
            device: Number of the device.

        Returns:
            `Update` and outputs for the whole batch.
        """
        parts, total, outputs = self.micro_batches, None, []
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
            del one  # The next part needs the room.
            masks = masks_of(y_pred)
            outputs.append(_piece((y_pred, masks), 0, last - first))
        return total, joined(outputs)

    def after(self, total, piece):
        """Returns a part of the batch that is read after the parts before it."""
        return piece


def _piece(batch, first, last, samples=0):
    if not isinstance(samples, int):
        # A part without samples takes the last one, with no share: layers fail on none.
        first = ops.minimum(first, samples - 1)
        last = ops.maximum(last, first + 1)

    def cut(value):
        return value if value is None else value[first:last]

    return keras.tree.map_structure(cut, batch)


def bound(samples, parts, i):
    """Returns the first sample of part i; the first parts may have one sample more."""
    rest = samples % parts
    early = min(i, rest) if isinstance(samples, int) else ops.minimum(i, rest)
    return i * (samples // parts) + early


def seed_shifts(variables, part) -> dict:
    """Returns offsets of seeds, so that the parts of a batch draw different masks.

    Args:
        variables: Those of which some are seeds.
        part: Its number, over all devices; which of them computes it changes nothing.

    Returns:
        {index of the variable: tensor}, empty for part 0.
    """
    if isinstance(part, int) and part == 0:
        return {}
    # Spread over all numbers: neighbours may be the seeds of another layer.
    shift = ops.convert_to_tensor(part * 0x3C6EF372 & 0x7FFFFFFF)
    return {
        i: ops.cast(ops.stack([shift, 0 * shift]), variable.dtype)
        for i, variable in enumerate(variables)
        if variable.name == "seed_generator_state"
    }
