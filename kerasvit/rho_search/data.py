"""Splits data of any form that Keras trains on into two lists of batches."""

import itertools
import numbers
from collections.abc import Iterator
from typing import Any, NoReturn

import keras
import numpy as np

HELD = 32  # largest number of held-out batches


def divide(
    data: Any, validation: Any, steps: int, batch_size: int, seed: int
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Splits data into training batches and held-out batches, in host memory.

    Args:
        data: A tuple of arrays `(x, y)` or `(x, y, sample_weight)`, or an iterable of
            such batches, which is read once.
        validation: Other data of these forms, or the share of `data` to hold out.
        steps: Largest number of training batches.
        batch_size: Number of samples per batch, for arrays.
        seed: Seed of the order of the samples, for arrays.

    Returns:
        Two lists of `(x, y, sample_weight)` as NumPy arrays. No sample is in both,
        unless an iterable yields it twice.

    Raises:
        ValueError: There are no targets, or too few samples; the share is not between 0
            and 1.
    """
    share = isinstance(validation, numbers.Real)
    if share and not 0 < validation < 1:
        raise ValueError(
            "`validation` must be data, or a share of it between 0 and 1. "
            f"Received: validation={validation!r}."
        )
    if not share:
        held = list(itertools.islice(_batches(validation, batch_size, seed), HELD))
        train = list(itertools.islice(_batches(data, batch_size, seed), steps))
    else:
        batches = list(itertools.islice(_batches(data, batch_size, seed), steps + HELD))
        count = min(HELD, max(2, round(validation * len(batches))))
        held, train = batches[:count], batches[count:][:steps]
    if len(held) < 2 or not train:
        raise ValueError(
            "`data` and `validation` must have at least one whole batch to train on "
            "and two to measure on: the difference between batches is needed to tell a "
            f"benefit from noise. Received: {len(train)} and {len(held)} batches. Pass "
            f"more samples or a smaller `batch_size` than {batch_size}."
        )
    return train, held


def _batches(data: Any, batch_size: int, seed: int) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, tuple):
        return _cut(_checked(data), batch_size, seed)
    if isinstance(data, keras.utils.PyDataset):
        count = data.num_batches
        indices = itertools.count() if count is None else iter(range(count))
        return (_checked(data[i]) for i in indices)
    if isinstance(data, list) and any(hasattr(part, "shape") for part in data):
        _refuse(data, " with arrays in it: for (x, y) write parentheses")
    if isinstance(data, dict | str | np.ndarray) or not hasattr(data, "__iter__"):
        _refuse(data)
    return (_checked(batch) for batch in data)


def _cut(
    arrays: tuple[Any, ...], batch_size: int, seed: int
) -> Iterator[tuple[Any, ...]]:
    """Cuts shuffled arrays into whole batches."""
    leaves = [a for a in keras.tree.flatten(arrays) if a is not None]
    lengths = {len(a) for a in leaves}
    if len(lengths) > 1:
        raise ValueError(
            "`data` must have as many targets as inputs. "
            f"Received: arrays of shapes {[a.shape for a in leaves]}."
        )
    (samples,) = lengths
    order = np.random.default_rng(seed).permutation(samples)
    for start in range(0, samples - batch_size + 1, batch_size):
        chosen = order[start : start + batch_size]
        yield keras.tree.map_structure(
            lambda a, chosen=chosen: a if a is None else a[chosen], arrays
        )


def _checked(batch: Any) -> tuple[Any, ...]:
    """Returns inputs, targets and sample weights as NumPy arrays."""
    if not isinstance(batch, tuple | list) or not 2 <= len(batch) <= 3:
        _refuse(batch)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(batch))
    if x is None or y is None:
        _refuse(batch)
    arrays = keras.tree.map_structure(
        lambda a: a if a is None else np.asarray(a), (x, y, sample_weight)
    )
    if any(a.ndim == 0 for a in keras.tree.flatten(arrays) if a is not None):
        _refuse(batch, " with single numbers in it: numpy.asarray makes lists arrays")
    return arrays


def _refuse(data: Any, why: str = "") -> NoReturn:
    raise ValueError(
        "`data` and `validation` must be a tuple of arrays (x, y), or an iterable of "
        "batches (x, y), optionally with sample weights as a third entry. Targets y "
        f"are needed to compute the loss. Received: {type(data).__name__}"
        + (f" of {len(data)}" if hasattr(data, "__len__") else "")
        + f"{why}."
    )
