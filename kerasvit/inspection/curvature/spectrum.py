"""The trace and the density of a Hessian's eigenvalues, from random vectors."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer, number

from .hessian import Hessian
from .lanczos import orthogonal

POINTS_PER_SIGMA = 4
TAIL = 5.0  # standard deviations between the outermost eigenvalues and the grid's ends
MAX_POINTS = 10**7


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


@dataclass(frozen=True)
class SpectralDensity:
    """An estimate of the density of a matrix's eigenvalues.

    Args:
        grid: Array (G,), eigenvalues at equal distances.
        density: Array (G,), the density there; its integral is 1.
        sigma: Standard deviation of the Gaussian in place of each eigenvalue.
        nodes: Array (starts, steps), ascending rows: estimates of eigenvalues.
        weights: Array (starts, steps), the share of the spectrum at each node; a row
            sums to 1. A function f of the eigenvalues has the mean
            `(weights * f(nodes)).sum(1)`, one estimate for each start.
        products: Number of products of the matrix with a vector.
    """

    grid: np.ndarray
    density: np.ndarray
    sigma: float
    nodes: np.ndarray
    weights: np.ndarray
    products: int


def spectral_density(
    hessian: Hessian,
    *,
    starts: int = 5,
    steps: int = 100,
    sigma: float | None = None,
    seed: int = 0,
) -> SpectralDensity:
    """Returns the density of a Hessian's P eigenvalues.

        hessian = kerasvit.inspection.Hessian(model, x, y, loss)
        kerasvit.inspection.spectral_density(hessian)

    From each start, a vector of random signs, Lanczos' method makes a tridiagonal
    matrix. Its eigenvalues are the nodes, and the squared first entries of its
    eigenvectors the weights, of a Gauss quadrature of the density. The Gaussian makes
    of it a function. Each new vector is orthogonalised against all before it, twice.

    Memory on the host: `steps` + 2 copies of the selected weights. For ViT-B/16 a copy
    is 0.35 GB.

    Args:
        hessian: `Hessian` of P weights, or any symmetric matrix with `shape`, `dtype`
            and `@`, such as an array.
        starts: Number of random starts, ≥ 1; their differences show the error.
        steps: Number of products for each start, ≥ 1; at most P are made.
        sigma: Standard deviation of the Gaussian, in units of eigenvalues. None: that
            of PyHessian, √(1e-5 · max(1, range of the nodes)), too wide for a spectrum
            narrower than about 0.1.
        seed: Seed of the starts.

    Returns:
        `SpectralDensity`.

    Raises:
        ValueError: An argument is out of its range, `sigma` is too small for a grid, or
            as for a product of `Hessian`.

    Reference: Ghorbani et al. 2019, arXiv 1901.10159, algorithms 1 and 2; `density` and
    `density_plot.py` of amirgholami/PyHessian.
    """
    check_matrix(hessian)
    integer("starts", starts, 1)
    steps = min(integer("steps", steps, 1), hessian.shape[0])
    if sigma is not None:
        number("sigma", sigma, positive=True)
    generator = np.random.default_rng(seed)
    nodes, weights = np.empty((starts, steps)), np.zeros((starts, steps))
    products = 0
    for i in range(starts):
        diagonal, beside = _tridiagonal(
            hessian, random_signs(generator, hessian), steps
        )
        matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        values, vectors = np.linalg.eigh(matrix)
        used = len(values)
        nodes[i, :used], nodes[i, used:] = values, values[-1]
        weights[i, :used] = vectors[0] ** 2
        products += used
    width = np.ptp(nodes)
    sigma = math.sqrt(1e-5 * max(1.0, width)) if sigma is None else sigma
    points = math.ceil((width / sigma + 2 * TAIL) * POINTS_PER_SIGMA) + 1
    if points > MAX_POINTS:
        raise ArgumentError(
            f"`sigma` must be at least {width * POINTS_PER_SIGMA / MAX_POINTS:.1e} for "
            f"eigenvalues from {nodes.min():.4g} to {nodes.max():.4g}. Received: "
            f"sigma={sigma}.",
            "sigma",
        )
    tail = TAIL * sigma
    grid = np.linspace(nodes.min() - tail, nodes.max() + tail, points)
    density = smoothed(grid, nodes, weights / starts, sigma)
    return SpectralDensity(grid, density, sigma, nodes, weights, products)


def check_matrix(hessian: Any) -> None:
    """Raises an `ArgumentError` for what has no shape or products with vectors."""
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


def smoothed(
    grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, sigma: float
) -> np.ndarray:
    """Returns the weighted sum of Gaussians around nodes, at the points of a grid."""
    density = np.zeros(len(grid))
    for node, weight in zip(nodes.ravel(), weights.ravel(), strict=True):
        density += weight * np.exp(-(((grid - node) / sigma) ** 2) / 2)
    return density / (sigma * math.sqrt(2 * math.pi))


def _tridiagonal(
    hessian: Hessian, start: np.ndarray, steps: int
) -> tuple[list[float], list[float]]:
    """Returns diagonal and off-diagonal of the matrix in the Krylov space of a start.

    It has fewer than `steps` rows where that space is complete before.
    """
    basis = np.empty((steps, len(start)), start.dtype)
    diagonal: list[float] = []
    beside: list[float] = []
    norm = np.linalg.norm(start)
    for i in range(steps):
        basis[i] = start / norm
        start, overlaps = orthogonal(hessian @ basis[i], basis[: i + 1])
        diagonal.append(float(overlaps[-1]))
        norm = np.linalg.norm(start)
        scale = max(map(abs, [*diagonal, *beside]))
        if i + 1 == steps or norm <= 10 * np.finfo(basis.dtype).eps * scale:
            break
        beside.append(float(norm))
    return diagonal, beside
