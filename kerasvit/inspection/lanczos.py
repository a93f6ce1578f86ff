"""Extreme eigenvalues of a symmetric matrix, from its products with vectors."""

from dataclasses import dataclass

import numpy as np

from kerasvit.arguments import ArgumentError, integer, one_of

# What comes first among eigenvalues, by the name of the wish.
ORDERS = {
    "largest": lambda values: -values,
    "smallest": lambda values: values,
    "magnitude": lambda values: -np.abs(values),
}


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues with their vectors, and how exact they are.

    Args:
        values: Array (k,), in the order asked for.
        vectors: Array (k, P), orthonormal rows.
        residuals: Array (k,), ‖A v − λ v‖: some eigenvalue is within this of λ.
        products: How many products of the matrix with a vector were made.
        converged: Whether all residuals are within the tolerance.
    """

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    products: int
    converged: bool


def eigenpairs(
    product,
    size: int,
    *,
    k: int = 1,
    which: str = "largest",
    tolerance: float = 1e-3,
    vectors: int = 20,
    max_products: int = 300,
    seed: int = 0,
    dtype: str = "float32",
    report=None,
) -> Eigenpairs:
    """The first eigenvalues of a symmetric matrix, by Lanczos' method with restarts.

    Power iteration finds the eigenvalue of the largest magnitude, whatever its sign;
    this finds either end of the spectrum. Each new product is made orthogonal to all
    vectors kept, and when `vectors` of them are kept, the better half of what they span
    is carried on (a thick restart). An eigenvalue that repeats exactly counts once: one
    start sees one direction of those that share it.

    Args:
        product: Function of an array (P,) that returns the matrix times it.
        size: P.
        k: How many eigenvalues, in [1, P].
        which: "largest", the most positive; "smallest", the most negative; "magnitude",
            the largest of either sign.
        tolerance: Largest residual over the eigenvalue's magnitude, > 0. A residual
            that is nothing but rounding is always enough.
        vectors: How many vectors of the matrix's size are kept in memory, > 2 k. More
            converge in fewer products.
        max_products: Products after which the best so far is returned, ≥ 1.
        seed: Of the random vector to start with.
        dtype: Of the vectors, "float32" or "float64".
        report: Function that is called after every product with the first eigenvalue
            so far and its residual, two floats; or None.

    Returns:
        `Eigenpairs`.

    Raises:
        ValueError: An argument is out of its range.

    Reference: Wu and Simon 2000, SIAM J. Matrix Anal. Appl. 22, algorithm 3.
    """
    _check(k, size, which, tolerance, vectors, max_products)
    generator = np.random.default_rng(seed)
    vectors = min(vectors, size)
    basis = np.empty((vectors, size), dtype)  # orthonormal rows; memory as they fill
    projected = np.zeros((vectors, vectors))  # the matrix within what they span
    new, used, products = generator.standard_normal(size, dtype), 0, 0
    while True:
        basis[used] = new / _norm(new)
        new = product(basis[used])
        products += 1
        used += 1
        new, overlaps = _orthogonal(new, basis[:used])
        projected[used - 1, :used] = projected[:used, used - 1] = overlaps
        values, mixes = np.linalg.eigh(projected[:used, :used])
        first = np.argsort(ORDERS[which](values), kind="stable")
        values, mixes = values[first], mixes[:, first]
        residuals = _norm(new) * np.abs(mixes[-1])
        rounding = 10 * np.finfo(dtype).eps * np.abs(values).max()
        allowed = np.maximum(tolerance * np.abs(values), rounding)
        if report is not None:
            report(float(values[0]), float(residuals[0]))
        converged = used >= k and bool((residuals <= allowed)[:k].all())
        if converged or used == size or products == max_products:
            break
        if _norm(new) <= rounding:
            # All that this start can reach is found, and it is too little.
            new, _ = _orthogonal(generator.standard_normal(size, dtype), basis[:used])
        if used == vectors:
            used = (vectors + k) // 2
            _recombine(basis, mixes[:, :used])
            projected[:] = 0
            np.fill_diagonal(projected[:used, :used], values[:used])
    return Eigenpairs(
        values[:k],
        mixes[:, :k].T.astype(dtype) @ basis[: len(mixes)],
        residuals[:k],
        products,
        converged or used == size,
    )


def _check(k, size, which, tolerance, vectors, max_products):
    one_of("which", which, tuple(ORDERS))
    if not tolerance > 0:
        raise ArgumentError(
            f"`tolerance` must be > 0. Received: {tolerance!r}.", "tolerance"
        )
    integer("k", k, 1)
    integer("vectors", vectors, 2 * k + 1)
    integer("max_products", max_products, 1)
    if k > size:
        raise ArgumentError(
            f"`k` must be at most {size}, the size of the matrix. Received: {k}.", "k"
        )


def _norm(vector):
    return float(np.linalg.norm(vector))


def _orthogonal(vector, rows):
    """What of the vector is orthogonal to orthonormal rows, and its product with each.

    Twice, as the first time leaves what it rounds.
    """
    overlaps = rows @ vector
    vector = vector - overlaps @ rows
    missed = rows @ vector
    return vector - missed @ rows, overlaps + missed


def _recombine(basis, mixes):
    """Writes new vectors over the first ones, some columns at a time."""
    mixes = mixes.T.astype(basis.dtype)
    for start in range(0, basis.shape[1], 2**16):
        columns = basis[:, start : start + 2**16]
        columns[: len(mixes)] = mixes @ columns
