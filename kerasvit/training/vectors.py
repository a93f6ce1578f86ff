"""Vector operations on lists of tensors: all weights, or their gradients.

An entry may be None: the loss does not depend on that weight, or it is left out. Sums
over all entries are float32, or float64 where an entry is. What is computed and soon
used up comes entry after entry, from an iterator, and needs no room for a whole vector.
"""

import keras
from keras import ops


def dot(first, second):
    """Returns the scalar product; 0 for empty vectors."""
    pairs = zip(first, second, strict=True)
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not pairs:
        return ops.zeros(())
    dtype = _sum_dtype(*(entry for pair in pairs for entry in pair))
    products = [ops.sum(ops.cast(a, dtype) * ops.cast(b, dtype)) for a, b in pairs]
    return ops.sum(ops.stack(products))


def norm(vector):
    """Returns the Euclidean norm."""
    return ops.sqrt(dot(vector, vector))


def over(rho, length):
    """Returns `rho` / `length`, or NaN where the length is not finite.

    For a length of 0 it is a large number, and its product with a gradient of zeros is
    0. In place of NaN, a quotient of 0 would leave the weights of finite gradients
    where they are, and hide that others overflowed.
    """
    # 1e-12 as in davda54/sam and big_vision; the authors' code has nothing here, and
    # a zero gradient gives NaN.
    rho = _number(rho, length.dtype)
    return ops.where(ops.isfinite(length), rho / (length + 1e-12), float("nan"))


def ascend(weights, gradients, rho):
    """Returns the weights after a step of length `rho` along the gradient.

    Args:
        weights: Tensors.
        gradients: As many tensors, or None where the loss does not depend on one.
        rho: Length of the step, one norm over all tensors together; ≥ 0.

    Returns:
        New tensors, each of its weight's dtype. A gradient of zero moves nothing. A
        norm that is not finite makes every tensor that has a gradient NaN.
    """
    return add(weights, gradients, over(rho, norm(gradients)))


def add(weights, vector, factor):
    """Yields `weights` + `factor` · `vector`, each in the dtype of its weight."""
    return list(_sums(weights, vector, factor))


def multiply(vector, factors):
    """Yields elementwise products; a factor None leaves its entry unchanged.

    The factors are used up: they must be tensors that nothing else needs.
    """
    for v, f in zip(vector, factors, strict=True):
        if v is not None and f is not None:
            f *= v  # in place under PyTorch: no third tensor
            v = f
        del f
        yield v


def orthogonal(vector, direction):
    """Yields the part of `vector` that is orthogonal to `direction`."""
    length = norm(direction) + 1e-12
    # Divided twice: the square of a small length is 0 in float32.
    share = dot(vector, direction) / length / length
    return _sums(vector, direction, -share)


def all_finite(vector):
    """Returns whether all entries and their sums are finite, a scalar tensor."""
    # The sum of such an entry is not finite, and takes less memory than a test of each
    # number.
    sums = (ops.sum(ops.cast(v, _sum_dtype(v))) for v in vector if v is not None)
    found = [ops.isfinite(total) for total in sums]
    return ops.all(ops.stack(found)) if found else ops.isfinite(ops.zeros(()))


def only_if(condition, vector):
    """Returns the vector, or NaN in all entries where a scalar tensor is False.

    It is written into the list, so that there is one vector at a time.
    """
    for i, v in enumerate(vector):
        if v is not None:
            vector[i] = ops.where(condition, v, float("nan"))
    return vector


def _sums(weights, vector, factor):
    for w, v in zip(weights, vector, strict=True):
        if w is not None and v is not None:
            dtype = _sum_dtype(w, v)
            step = ops.cast(_number(factor, dtype) * ops.cast(v, dtype), w.dtype)
            step += w  # in place under PyTorch: no third tensor
            w = step
        yield w


def _number(value, dtype):
    # TensorFlow would round a float of Python to float32 first.
    return value if isinstance(value, float) else ops.cast(value, dtype)


def _sum_dtype(*entries):
    dtypes = {keras.backend.standardize_dtype(entry.dtype) for entry in entries}
    return "float64" if "float64" in dtypes else "float32"
