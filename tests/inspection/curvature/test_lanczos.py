"""Eigenvalues from products, against those of the formed matrix."""

import numpy as np
import pytest

from kerasvit.inspection.curvature.lanczos import eigenpairs


def symmetric(values, seed=0):
    random = np.random.default_rng(seed).standard_normal((len(values), len(values)))
    basis, _ = np.linalg.qr(random)
    return (basis * values) @ basis.T


MIXED = np.concatenate([np.linspace(-20, -1, 30), np.linspace(0, 3, 50)])


@pytest.mark.parametrize(
    ("which", "expected"),
    [("largest", MIXED[::-1][:3]), ("smallest", MIXED[:3]), ("magnitude", MIXED[:3])],
)
@pytest.mark.parametrize("vectors", [12, 80])
def test_first_eigenvalues_with_and_without_restarts(which, expected, vectors):
    matrix = symmetric(MIXED)
    found = eigenpairs(
        matrix.__matmul__, 80, k=3, which=which, vectors=vectors, tolerance=1e-6,
        max_products=1000, dtype="float64",
    )  # fmt: skip
    assert found.converged
    assert (found.products > vectors) == (vectors < 80)
    np.testing.assert_allclose(found.values, expected, rtol=1e-6)
    for value, vector, residual in zip(
        found.values, found.vectors, found.residuals, strict=True
    ):
        error = np.linalg.norm(matrix @ vector - value * vector)
        np.testing.assert_allclose(error, residual, atol=1e-12)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(3), atol=1e-12)


def test_float32_stays_orthogonal_over_many_restarts():
    # Nearly equal eigenvalues converge slowly.
    values = np.concatenate([np.linspace(-1, 1, 399), [1.01]])
    matrix = symmetric(values).astype("float32")
    found = eigenpairs(matrix.__matmul__, 400, vectors=10, tolerance=1e-4)
    assert found.converged and found.products > 50
    np.testing.assert_allclose(found.values, [1.01], rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.vectors), 1, rtol=1e-5)


def test_an_eigenvalue_that_repeats_counts_once_while_there_are_others():
    product = symmetric(np.array([5.0, 5, 5, 1, 1, 1, 1, -2])).__matmul__
    for k, expected in ((2, [5, 1]), (3, [5, 1, -2]), (8, [5, 5, 5, 1, 1, 1, 1, -2])):
        found = eigenpairs(product, 8, k=k, vectors=17, dtype="float64")
        assert found.converged
        np.testing.assert_allclose(found.values, expected)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_a_matrix_of_zeros(size):
    found = eigenpairs(lambda vector: 0 * vector, size, k=size, vectors=61)
    np.testing.assert_array_equal(found.values, np.zeros(size))
    assert found.converged


def test_the_largest_eigenvalue_of_a_negative_matrix_can_be_zero():
    values = np.concatenate([np.linspace(-9, -1, 20), [0.0]])
    found = eigenpairs(symmetric(values).__matmul__, 21, dtype="float64")
    assert found.converged
    np.testing.assert_allclose(found.values, [0], atol=1e-6)


def test_stops_at_the_limit_with_a_note():
    matrix = symmetric(np.linspace(0, 1, 50))
    found = eigenpairs(matrix.__matmul__, 50, max_products=4, tolerance=1e-6)
    assert found.products == 4 and not found.converged
    assert 0.5 < found.values[0] < 1  # from below


def test_a_seed_determines_the_start():
    matrix = symmetric(MIXED)
    starts = []

    def product(vector):
        starts.append(np.array(vector))
        return matrix @ vector

    for seed in (0, 0, 1):
        eigenpairs(product, 80, max_products=1, seed=seed)
    np.testing.assert_array_equal(starts[0], starts[1])
    assert abs(starts[0] @ starts[2]) < 0.5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"which": "biggest"}, "`which` must be one of .*'magnitude'.* 'biggest'"),
        ({"k": 0}, r"`k` must be a whole number in \[1, 8\], .*Received: k=0"),
        (
            {"k": 9, "vectors": 50},
            r"`k` must .* \[1, 8\], .*size of the.*: k=9",
        ),
        (
            {"k": 4, "vectors": 8},
            "`vectors` must be a whole number ≥ 9.*=8",
        ),
        ({"max_products": 2.5}, "`max_products` must be a whole number .*=2.5"),
        (
            {"tolerance": float("nan")},
            "`tolerance` must be .* number > 0. .*=nan",
        ),
    ],
)
def test_arguments_out_of_range(options, expected):
    with pytest.raises(ValueError, match=expected):
        eigenpairs(lambda vector: vector, 8, **options)
