"""The trace of a Hessian and the density of its eigenvalues."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.inspection import Hessian, spectral_density, trace
from tests.once import on_last_backend

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def symmetric(values, seed=0):
    """A matrix with these eigenvalues."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return vectors * values @ vectors.T


def gaussians(grid, values, weights, sigma):
    """The density of weighted values, each a Gaussian, longhand."""
    distances = (grid[:, None] - values) / sigma
    return np.exp(-(distances**2) / 2) @ weights / (sigma * np.sqrt(2 * np.pi))


def with_matrix(hessian):
    return hessian, np.stack([hessian @ unit for unit in np.eye(hessian.shape[0])])


@pytest.fixture(scope="module")
def small():
    """The Hessian of 43 weights, and its matrix."""
    rng = np.random.default_rng(0)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(3)]
    )
    model.set_weights([rng.standard_normal(w.shape) for w in model.weights])
    x = rng.standard_normal((6, 4)).astype("float32")
    return with_matrix(Hessian(model, x, rng.integers(0, 3, 6), CROSS_ENTROPY))


@pytest.mark.slow
def test_a_model_s_density_and_trace(small):
    hessian, matrix = small
    values, vectors = np.linalg.eigh(matrix.astype("float64"))
    start = 2 * np.random.default_rng(1).integers(0, 2, 43, dtype="int8") - 1.0
    shares = (vectors.T @ start) ** 2 / 43
    found = spectral_density(hessian, starts=1, sigma=0.05, seed=1)
    expected = gaussians(found.grid, values, shares, 0.05)
    np.testing.assert_allclose(found.density, expected, atol=1e-4 * expected.max())
    found = trace(hessian, vectors=40)
    assert abs(found.value - values.sum()) < 4 * found.standard_error
    off_diagonal = matrix - np.diag(np.diag(matrix))
    error = np.sqrt(2 * (off_diagonal**2).sum() / 40)
    np.testing.assert_allclose(found.standard_error, error, rtol=0.5)


@on_last_backend
@pytest.mark.slow
def test_the_density_is_that_of_all_507_eigenvalues():
    rng = np.random.default_rng(0)
    model = keras.Sequential(
        [keras.Input((20,)), layers.Dense(21, activation="tanh"), layers.Dense(3)]
    )
    x = rng.standard_normal((24, 20)).astype("float32")
    network = Hessian(model, x, rng.integers(0, 3, 24), CROSS_ENTROPY)
    hessian, matrix = with_matrix(network)
    values = np.linalg.eigvalsh(matrix.astype("float64"))
    found = spectral_density(hessian, starts=12, steps=50, sigma=0.02)
    exact = gaussians(found.grid, values, np.full(507, 1 / 507), 0.02)
    step = found.grid[1] - found.grid[0]
    # With 12 starts, the shares of the bulk have a standard error of a few per cent.
    assert np.abs(found.density - exact).sum() * step < 0.1
    np.testing.assert_allclose(found.density.sum() * step, 1, atol=1e-4)
    ends = found.nodes[:, [0, -1]]
    np.testing.assert_allclose(ends, np.tile(values[[0, -1]], (12, 1)), atol=1e-4)
    moments = (found.weights * found.nodes**2).sum(1)
    error = moments.std(ddof=1) / np.sqrt(12)
    assert abs(moments.mean() - (values**2).mean()) < 4 * error


@on_last_backend
def test_a_trace_is_the_mean_over_random_signs():
    matrix = symmetric(np.linspace(-1, 3, 12))
    found = trace(matrix, vectors=7, seed=5)
    rng = np.random.default_rng(5)
    signs = [2 * rng.integers(0, 2, 12, dtype="int8") - 1.0 for _ in range(7)]
    samples = [v @ matrix @ v for v in signs]
    np.testing.assert_allclose(found.samples, samples)
    np.testing.assert_allclose(found.value, np.mean(samples))
    np.testing.assert_allclose(
        found.standard_error, np.std(samples, ddof=1) / np.sqrt(7)
    )


@on_last_backend
def test_the_trace_of_a_diagonal_matrix_has_no_error():
    found = trace(np.diag([3.0, -1, 0.5]), vectors=2)
    assert (found.value, found.standard_error) == (2.5, 0)


@on_last_backend
def test_all_steps_give_the_quadratic_form_of_the_start_exactly():
    values = np.linspace(-1, 3, 30)
    matrix = symmetric(values)
    found = spectral_density(matrix, starts=1, steps=100, sigma=0.1, seed=2)
    start = 2 * np.random.default_rng(2).integers(0, 2, 30, dtype="int8") - 1.0
    shares = (np.linalg.eigh(matrix)[1].T @ start) ** 2 / 30
    np.testing.assert_allclose(found.nodes[0], values, atol=1e-8)
    np.testing.assert_allclose(found.weights[0], shares, atol=1e-8)
    expected = gaussians(found.grid, values, shares, 0.1)
    np.testing.assert_allclose(found.density, expected, atol=1e-8)
    assert found.products == 30


@on_last_backend
def test_a_complete_krylov_space_ends_the_steps():
    found = spectral_density(symmetric(np.repeat([2.0, -1.0], 10)), starts=3)
    assert found.products == 6
    np.testing.assert_allclose(found.nodes[:, 0], -1)
    np.testing.assert_allclose(found.nodes[:, 1:], 2)
    np.testing.assert_allclose(found.weights.sum(1), 1)


@on_last_backend
@pytest.mark.parametrize("scale", [1, 400])
def test_the_default_width_is_that_of_pyhessian(scale):
    found = spectral_density(scale * symmetric(np.linspace(-1, 3, 30)), steps=30)
    np.testing.assert_allclose(found.sigma, np.sqrt(1e-5 * 4 * scale), rtol=1e-6)
    step = found.grid[1] - found.grid[0]
    assert step <= found.sigma / 4
    np.testing.assert_allclose(found.density.sum() * step, 1, atol=1e-4)


@on_last_backend
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"starts": 0}, "`starts` must be a whole number ≥ 1"),
        ({"steps": 0}, "`steps` must be a whole number ≥ 1"),
        ({"sigma": 0}, "`sigma` must be a finite number > 0"),
        ({"sigma": 1e-9}, "`sigma` must be at least 1.6e-06 .* from -1 to 3"),
    ],
)
def test_arguments_of_the_density(options, expected):
    with pytest.raises(ValueError, match=expected):
        spectral_density(symmetric(np.linspace(-1, 3, 5)), **options)


@on_last_backend
@pytest.mark.parametrize("tool", [trace, spectral_density])
def test_a_model_in_place_of_its_hessian(tool):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    with pytest.raises(ValueError, match=r"must be a Hessian.*Received: Sequential"):
        tool(model)


@on_last_backend
def test_a_standard_error_needs_two_vectors():
    with pytest.raises(ValueError, match="`vectors` must be a whole number ≥ 2"):
        trace(np.eye(3), vectors=1)
