"""Extreme eigenvalues of a symmetric matrix, from its products with vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasvit.arguments import integer, number, one_of

# Sort keys of the eigenvalues: the first has the smallest key.
ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "largest": lambda values: -values,
    "smallest": lambda values: values,
    "magnitude": lambda values: -np.abs(values),
}


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues and eigenvectors, with the size of their errors.

    Args:
        values: Eigenvalues, array (k,), in the order of `which`.
        vectors: Eigenvectors, array (k, P), orthonormal rows.
        residuals: Array (k,), ‖A v − λ v‖: an eigenvalue lies within this distance of
            λ.
        products: Number of products of the matrix with a vector.
        converged: Whether all residuals are within the tolerance.
    """

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    products: int
    converged: bool


def eigenpairs(
    product: Callable[[np.ndarray], np.ndarray],
    size: int,
    *,
    k: int = 1,
    which: str = "largest",
    tolerance: float = 1e-3,
    vectors: int = 20,
    max_products: int = 300,
    seed: int = 0,
    dtype: str = "float32",
    report: Callable[[float, float], None] | None = None,
) -> Eigenpairs:
    """Returns the first eigenvalues of a symmetric matrix, by restarted Lanczos.

    Power iteration finds the eigenvalue of the largest magnitude, of either sign;
    Lanczos' method finds either end of the spectrum. Each new product is
    orthogonalised against all stored vectors. When `vectors` of them are stored, the
    better half of the subspace is kept and the rest dropped (a thick restart). An
    eigenvalue that repeats exactly counts once: the Krylov space of one starting vector
    contains one direction of its eigenspace.

    Args:
        product: Function of an array (P,) that returns the matrix times that array.
        size: P.
        k: Number of eigenvalues, in [1, P].
        which: "largest", the most positive; "smallest", the most negative; "magnitude",
            the largest of either sign.
        tolerance: Largest residual over the eigenvalue's magnitude, > 0. A residual at
            the level of rounding is always accepted.
        vectors: Number of vectors of the matrix's size in memory, > 2 k. More vectors
            need fewer products.
        max_products: Number of products after which the best result so far is returned,
            ≥ 1.
        seed: Seed of the random starting vector.
        dtype: Dtype of the vectors, "float32" or "float64".
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
    basis = np.empty((vectors, size), dtype)  # orthonormal rows
    projected = np.zeros((vectors, vectors))  # the matrix in the basis
    new, used, products = _random(generator, size, dtype), 0, 0
    while True:
        np.divide(new, _norm(new), out=basis[used])
        del new  # its memory is that of the product
        new = product(basis[used])
        products += 1
        used += 1
        new, overlaps = orthogonal(new, basis[:used])
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
            # The Krylov space of this starting vector is complete: take another one.
            new, _ = orthogonal(_random(generator, size, dtype), basis[:used])
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


def _check(
    k: int, size: int, which: str, tolerance: float, vectors: int, max_products: int
) -> None:
    one_of("which", which, tuple(ORDERS))
    number("tolerance", tolerance, positive=True)
    integer("k", k, 1, size, meaning="at most the size of the matrix")
    integer("vectors", vectors, 2 * k + 1)
    integer("max_products", max_products, 1)


def _random(generator: np.random.Generator, size: int, dtype: Any) -> np.ndarray:
    return generator.standard_normal(size, dtype)


def _norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def orthogonal(vector: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonalises a vector against orthonormal rows.

    The second of two rounds removes the rounding errors of the first.

    Returns:
        The orthogonal component, and the product of the vector with each row.
    """
    overlaps = rows @ vector
    component = overlaps @ rows
    np.subtract(vector, component, out=component)
    corrections = rows @ component
    component -= corrections @ rows
    return component, overlaps + corrections


def _recombine(basis: np.ndarray, mixes: np.ndarray) -> None:
    """Overwrites the first vectors with linear combinations, by blocks of columns."""
    mixes = mixes.T.astype(basis.dtype)
    for start in range(0, basis.shape[1], 2**16):
        columns = basis[:, start : start + 2**16]
        columns[: len(mixes)] = mixes @ columns
