"""Vector operations on lists of tensors: all weights, or their gradients.

An entry is None where the loss does not depend on that weight, or where it is left out.
Sums over all entries are float32, or float64 where an entry is. Intermediate vectors
are iterators, so that one entry is in memory at a time and not the whole vector.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras import ops

from kerasvit.types import Gradients, Tensor

TORCH = keras.backend.backend() == "torch"
if TORCH:
    from kerasvit.backend.torch import optimizers


def dot(first: Iterable[Tensor | None], second: Iterable[Tensor | None]) -> Tensor:
    """Returns the scalar product; 0 for empty vectors."""
    pairs = [
        (a, b)
        for a, b in zip(first, second, strict=True)
        if a is not None and b is not None
    ]
    if not pairs:
        return ops.zeros(())
    dtype = _sum_dtype(*(entry for pair in pairs for entry in pair))
    products = [ops.sum(ops.cast(a, dtype) * ops.cast(b, dtype)) for a, b in pairs]
    return ops.sum(ops.stack(products))


def norm(vector: Gradients) -> Tensor:
    """Returns the Euclidean norm."""
    entries = [v for v in vector if v is not None]
    if TORCH and entries:
        of_each = optimizers.norms(entries, 2, _sum_dtype(*entries))
        return optimizers.norms([of_each], 2, _sum_dtype(of_each))[0]
    return ops.sqrt(dot(vector, vector))


def over(rho: Tensor | float, length: Tensor) -> Tensor:
    """Returns `rho` / `length`, or NaN where the length is not finite.

    For a length of 0 the quotient is a large number, and its product with a gradient of
    zeros is 0. For an infinite length a quotient of 0 would hide the overflow: weights
    with a finite gradient would be left where they are.
    """
    # 1e-12 as in davda54/sam and big_vision. The authors' code adds nothing, so that a
    # zero gradient gives NaN.
    rho = _number(rho, length.dtype)
    return rho / (length + 1e-12) * one_or_nan(ops.isfinite(length), length.dtype)


def ascend(
    weights: list[Tensor],
    gradients: Gradients,
    rho: Tensor | float,
    length: Tensor | None = None,
) -> list[Tensor]:
    """Returns the weights after a step of length `rho` along the gradient.

    Args:
        weights: Tensors.
        gradients: As many tensors, or None where the loss does not depend on one.
        rho: Length of the step, one norm over all tensors together; ≥ 0.
        length: Norm of the gradients, if it is known.

    Returns:
        New tensors, each of the dtype of its weight. A zero gradient changes nothing. A
        norm that is not finite makes every tensor that has a gradient NaN.
    """
    factor = over(rho, norm(gradients) if length is None else length)
    pairs = list(zip(weights, gradients, strict=True))
    moved = [(w, g) for w, g in pairs if g is not None]
    dtypes = {entry.dtype for pair in moved for entry in pair}
    if TORCH and len(dtypes) == 1 and dtypes == {factor.dtype}:
        from_, along = zip(*moved, strict=True)
        found = iter(optimizers.sums(list(from_), list(along), factor))
        return [w if g is None else next(found) for w, g in pairs]
    return add(weights, gradients, factor)


def add(
    weights: Iterable[Tensor | None],
    vector: Iterable[Tensor | None],
    factor: Tensor | float,
) -> list[Tensor]:
    """Returns `weights` + `factor` · `vector`, each in the dtype of its weight."""
    return list(_sums(weights, vector, factor))


def multiply(
    vector: Iterable[Tensor | None], factors: Iterable[Tensor | None]
) -> Iterator[Tensor | None]:
    """Yields elementwise products; a factor None leaves its entry unchanged.

    The factors may be overwritten: they must be tensors that nothing else needs.
    """
    for v, f in zip(vector, factors, strict=True):
        if v is not None and f is not None:
            f *= v  # in place under PyTorch: no third tensor
            v = f
        del f
        yield v


def orthogonal(vector: Gradients, direction: Gradients) -> Iterator[Tensor | None]:
    """Yields the component of `vector` that is orthogonal to `direction`."""
    length = norm(direction) + 1e-12
    # Two divisions: the square of a small length is 0 in float32.
    share = dot(vector, direction) / length / length
    return _sums(vector, direction, -share)


def all_finite(vector: Gradients) -> Tensor:
    """Returns whether all entries and their sums are finite, a scalar tensor."""
    # An entry with a number that is not finite has a sum that is not finite. The sums
    # take less memory than a test of each number.
    entries = [v for v in vector if v is not None]
    if TORCH and entries:
        lengths = optimizers.norms(entries, 1, _sum_dtype(*entries))
        return ops.all(ops.isfinite(lengths))
    sums = (ops.sum(ops.cast(v, _sum_dtype(v))) for v in vector if v is not None)
    finite = [ops.isfinite(total) for total in sums]
    return ops.all(ops.stack(finite)) if finite else ops.isfinite(ops.zeros(()))


def only_if(condition: Tensor, vector: Gradients) -> Gradients:
    """Returns the vector, or NaN in all entries where a scalar tensor is False.

    The list is changed in place, so that only one vector is in memory.
    """
    numbers = {
        dtype: one_or_nan(condition, dtype)
        for dtype in {v.dtype for v in vector if v is not None}
    }
    if TORCH and len(numbers) == 1:
        optimizers.multiply(vector, *numbers.values())
        return vector
    for i, v in enumerate(vector):
        if v is not None:
            vector[i] = v * numbers[v.dtype]
    return vector


def one_or_nan(condition: Tensor, dtype: Any) -> Tensor:
    """Returns 1, or NaN where a scalar tensor is False."""
    number = ops.cast(condition, keras.backend.standardize_dtype(dtype))
    # Not a constant NaN, at which `tf.debugging.enable_check_numerics` would stop, and
    # which PyTorch would copy to a GPU after waiting for its work.
    return number / number


def _sums(
    weights: Iterable[Tensor | None],
    vector: Iterable[Tensor | None],
    factor: Tensor | float,
) -> Iterator[Tensor | None]:
    for w, v in zip(weights, vector, strict=True):
        if w is not None and v is not None:
            dtype = _sum_dtype(w, v)
            step = ops.cast(_number(factor, dtype) * ops.cast(v, dtype), w.dtype)
            step += w  # in place under PyTorch: no third tensor
            w = step
        yield w


def _number(value: Tensor | float, dtype: str) -> Tensor | float:
    # TensorFlow would round a Python float to float32 first.
    return value if isinstance(value, float) else ops.cast(value, dtype)


def _sum_dtype(*entries: Tensor) -> str:
    dtypes = {entry.dtype for entry in entries}
    names = map(keras.backend.standardize_dtype, dtypes)
    return "float64" if "float64" in names else "float32"
