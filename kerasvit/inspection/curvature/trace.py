"""The trace of a Hessian, estimated from products with random vectors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer

from .hessian import Hessian


@dataclass(frozen=True)
class Trace:
    """An estimate of a trace, with its error.

    Args:
        value: The mean of `samples`.
        standard_error: Standard deviation of that mean, from the spread of `samples`.
        samples: Array (vectors,), one unbiased estimate for each random vector.
    """

    value: float
    standard_error: float
    samples: np.ndarray


def trace(hessian: Hessian, *, vectors: int = 100, seed: int = 0) -> Trace:
    """Returns the trace of a Hessian, the sum of its eigenvalues, by Hutchinson.

        hessian = kerasvit.inspection.Hessian(model, x, y, loss)
        kerasvit.inspection.trace(hessian).value

    The trace is the mean of v·Hv over vectors v of independent random signs. The
    variance of one sample is twice the sum of the squared entries off the diagonal.
    Each vector costs one product; three vectors of the weights' size are in memory.

    Args:
        hessian: `Hessian` of P weights, or any symmetric matrix with `shape`, `dtype`
            and `@`, such as an array.
        vectors: Number of random vectors, ≥ 2.
        seed: Seed of the random signs.

    Returns:
        `Trace`.

    Raises:
        ValueError: `vectors` is out of its range, or as for a product of `Hessian`.

    Reference: Hutchinson 1990, Commun. Stat. Simul. Comput. 19; `hessian.trace` of
    amirgholami/PyHessian, which stops early where the mean changes little.
    """
    check_matrix(hessian)
    integer("vectors", vectors, 2)
    generator = np.random.default_rng(seed)
    samples = np.empty(vectors)
    for i in range(vectors):
        vector = random_signs(generator, hessian)
        samples[i] = np.dot(vector, hessian @ vector)
    error = samples.std(ddof=1) / np.sqrt(vectors)
    return Trace(float(samples.mean()), float(error), samples)


def check_matrix(hessian: Any) -> None:
    """Checks that something has a shape and products with vectors.

    Raises:
        ArgumentError: It has not.
    """
    if not hasattr(hessian, "shape") or not hasattr(hessian, "__matmul__"):
        raise ArgumentError(
            "`hessian` must be a Hessian: Hessian(model, x, y, loss). Received: "
            f"{type(hessian).__name__}.",
            "hessian",
        )


def random_signs(generator: np.random.Generator, hessian: Hessian) -> np.ndarray:
    """Returns a vector of independent entries 1 and −1 for a P × P matrix."""
    signs = generator.integers(0, 2, hessian.shape[0], dtype=np.int8)
    return (2 * signs - 1).astype(hessian.dtype)
