"""Micro-batches: parts of a device's batch, each with its own gradients."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasvit.types import Tensor

from .masks import joined, masks_of
from .update import Update, add_micro_batch


class MicroBatches:
    """Splits the batch of a train step; a base of `Step`.

    Attributes:
        micro_batches: Number of parts of each device's batch. They are computed one
            after the other.
    """

    micro_batches = 1

    def sum_micro_batches(
        self,
        update: Callable[[Any, Any], tuple[Update, Any]],
        batch: Any,
        metrics: Any,
        device: Any = 0,
    ) -> tuple[Update, Any]:
        """Sums the updates of all micro-batches of a device's batch.

        Args:
            update: Function of a micro-batch and its index over all devices. It
                returns an `Update` and the outputs.
            batch: Inputs, targets and sample weights.
            metrics: Function that returns the values of the metrics' variables before
                the step. It is called after the first update, which may create metrics.
            device: Number of the device.

        Returns:
            `Update` and outputs for the whole batch.
        """
        count: int = self.micro_batches
        total: Update | None = None
        outputs: list = []
        if count == 1:
            return update(batch, device)
        samples = batch_size(batch)
        if isinstance(samples, int):
            count = min(count, samples)
        for i in range(count):
            first, last = bound(samples, count, i), bound(samples, count, i + 1)
            micro_batch = _slice(batch, first, last, samples)
            if total is not None:
                micro_batch = self.after(total, micro_batch)
            added, y_pred = update(micro_batch, device * self.micro_batches + i)
            total = add_micro_batch(total, added, (last - first) / samples, metrics())
            del added  # frees memory before the next micro-batch
            masks = masks_of(y_pred)
            outputs.append(_slice((y_pred, masks), 0, last - first))
        if total is None:
            raise ValueError("A batch must have at least one sample. Received: none.")
        return total, joined(outputs)

    def after(self, total: Update, micro_batch: Any) -> Any:
        """Returns the micro-batch such that it is computed after `total`."""
        return micro_batch


def _slice(batch: Any, first: Any, last: Any, samples: Any = 0) -> Any:
    if not isinstance(samples, int):
        # Layers fail on an empty batch, so an empty micro-batch gets the last sample.
        # Its share of the total is 0.
        first = ops.minimum(first, samples - 1)
        last = ops.maximum(last, first + 1)

    def cut(value: Tensor | None) -> Tensor | None:
        return value if value is None else value[first:last]

    return keras.tree.map_structure(cut, batch)


def batch_size(x: Any) -> Any:
    """Returns the number of samples in a batch of inputs, an int or a scalar tensor."""
    first = next(value for value in keras.tree.flatten(x) if value is not None)
    return ops.shape(first)[0]


def bound(samples: Any, count: int, i: int) -> Any:
    """Returns the first sample of micro-batch i; the first may have one more sample."""
    rest = samples % count
    early = min(i, rest) if isinstance(samples, int) else ops.minimum(i, rest)
    return i * (samples // count) + early


def seed_shifts(variables: list[keras.Variable], index: Any) -> dict[int, Tensor]:
    """Returns offsets of seeds, so that micro-batches draw different masks.

    Args:
        variables: Variables, some of which are seeds.
        index: Index of the micro-batch over all devices. The offsets do not depend on
            the device that computes it.

    Returns:
        {index of the variable: tensor}, empty for index 0.
    """
    if isinstance(index, int) and index == 0:
        return {}
    # A multiple of a large number, because the next integers may be seeds of other
    # layers.
    shift = ops.convert_to_tensor(index * 0x3C6EF372 & 0x7FFFFFFF)
    return {
        i: ops.cast(ops.stack([shift, 0 * shift]), variable.dtype)
        for i, variable in enumerate(variables)
        if variable.name == "seed_generator_state"
    }
