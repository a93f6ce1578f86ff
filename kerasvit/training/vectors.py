"""All weights of a model, or their gradients, as one vector: a list of tensors.

An entry may be None: the loss does not depend on that weight, or it is left out. Sums
over all entries are float32, whatever the entries are. What is computed and soon used
up comes entry after entry, from an iterator, and needs no room for a whole vector.
"""

from keras import ops


def dot(first, second):
    """The scalar product; 0 where no entry is left."""
    products = [
        ops.sum(ops.cast(a, "float32") * ops.cast(b, "float32"))
        for a, b in zip(first, second, strict=True)
        if a is not None and b is not None
    ]
    return ops.sum(ops.stack(products)) if products else ops.zeros(())


def norm(vector):
    """The Euclidean length."""
    return ops.sqrt(dot(vector, vector))


def add(weights, vector, factor):
    """`weights` + `factor` · `vector`, each entry of its weight's dtype."""
    return list(_sums(weights, vector, factor))


def multiply(vector, factors):
    """Iterator of products, element by element; a factor None leaves its entry."""
    return (
        v if v is None or f is None else v * f
        for v, f in zip(vector, factors, strict=True)
    )


def orthogonal(vector, direction):
    """Iterator of the part of `vector` at right angles to `direction`."""
    length = norm(direction) + 1e-12
    # Divided twice: the square of a small length is 0 in float32.
    share = dot(vector, direction) / length / length
    return _sums(vector, direction, -share)


def _sums(weights, vector, factor):
    for w, v in zip(weights, vector, strict=True):
        if w is not None and v is not None:
            step = ops.cast(factor * ops.cast(v, "float32"), w.dtype)
            step += w  # in place under PyTorch: no third tensor
            w = step
        yield w
