"""The density of a Hessian's eigenvalues, by stochastic Lanczos quadrature."""

import math
from dataclasses import dataclass

import numpy as np

from kerasvit.arguments import ArgumentError, integer, number

from .hessian import Hessian
from .lanczos import orthogonal
from .trace import check_matrix, random_signs

POINTS_PER_SIGMA = 4
TAIL = 5.0  # standard deviations between the outermost eigenvalues and the grid's ends
MAX_POINTS = 10**7


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
