from pathlib import Path

import numpy as np
import pytest

from kerasvit.layers.resampling import (
    KERNELS,
    resample_grid,
    resample_patches,
    resampling_matrix,
    spread_grid,
    spreading_matrix,
)
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is NumPy

GOLDEN = Path(__file__).parents[1] / "golden" / "posemb"
PATCHES = GOLDEN.with_name("patches") / "patch_kernels.npz"  # of timm 1.0.31
CASES = sorted(path.stem for path in GOLDEN.glob("*.npz"))
# Kernel → name of the reference code's results in the golden files.
RECORDED = {
    "corner_linear": "vit_jax",
    "bicubic_antialias": "timm_bicubic_aa",
    "bicubic": "timm_bicubic_noaa",
    "bilinear_antialias": "timm_bilinear_aa",
}


def resample_table(table, case, kernel):
    """Resamples the recorded (1, [class row +] H·W, D) table to the case's new size."""
    old, new = case["old_size"], case["new_size"]
    prefix = table.shape[1] - old.prod()
    grid = table[0, prefix:].reshape(*old, -1)
    cells = resample_grid(grid, new, kernel).reshape(new.prod(), -1)
    return np.concatenate([table[0, :prefix], cells])[None]


def test_golden_cases_are_all_here():
    assert len(CASES) == 8


@pytest.mark.parametrize("kernel", RECORDED)
@pytest.mark.parametrize("name", CASES)
def test_matches_the_original_code(name, kernel):
    with np.load(GOLDEN / f"{name}.npz") as case:
        for dtype, tolerance in (("f64", 1e-14), ("f32", 1e-5)):
            key = f"{RECORDED[kernel]}_{dtype}"
            if key not in case:  # vit_jax knows squares only; bilinear is f32 only
                continue
            table = case["posemb"].astype(case[key].dtype)
            found = resample_table(table, case, kernel)
            assert found.dtype == case[key].dtype
            np.testing.assert_allclose(found, case[key], rtol=0, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("source, target", [(1, 1), (1, 4), (4, 1), (7, 3), (3, 7)])
def test_rows_sum_to_one(source, target, kernel):
    matrix = resampling_matrix(source, target, kernel)
    assert matrix.shape == (target, source)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-15)


@pytest.mark.parametrize("kernel", KERNELS)
def test_same_size_changes_nothing(kernel):
    grid = np.random.default_rng(0).normal(size=(5, 3, 2)).astype("float32")
    np.testing.assert_array_equal(resample_grid(grid, (5, 3), kernel), grid)


def test_corner_linear_keeps_the_corners_and_draws_straight_lines():
    np.testing.assert_allclose(
        resampling_matrix(3, 5, "corner_linear") @ [0.0, 4.0, 2.0], [0, 2, 4, 3, 2]
    )


def test_corner_linear_takes_the_first_cell_for_a_side_of_one():
    np.testing.assert_array_equal(
        resampling_matrix(3, 1, "corner_linear"), [[1.0, 0.0, 0.0]]
    )


def test_bilinear_repeats_the_edge():
    np.testing.assert_allclose(
        resampling_matrix(2, 4, "bilinear") @ [0.0, 4.0], [0, 1, 3, 4]
    )


def test_bilinear_without_antialias_ignores_most_cells_when_shrinking():
    # Cell centres 1.5 and 5.5 of eight: the mean of two neighbours each.
    np.testing.assert_allclose(
        resampling_matrix(8, 2, "bilinear"),
        [[0, 0.5, 0.5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0.5, 0.5, 0]],
    )


def test_bilinear_with_antialias_weighs_every_cell_it_replaces():
    # A triangle four cells wide to each side, around 1.5; the left is cut off.
    weights = np.array([2.5, 3.5, 3.5, 2.5, 1.5, 0.5, 0, 0])
    np.testing.assert_allclose(
        resampling_matrix(8, 2, "bilinear_antialias")[0], weights / weights.sum()
    )


def test_sides_are_resampled_separately():
    grid = np.random.default_rng(0).normal(size=(4, 6, 2, 3))
    rows, columns = (resampling_matrix(s, t, "bicubic") for s, t in ((4, 7), (6, 3)))
    np.testing.assert_allclose(
        resample_grid(grid, (7, 3), "bicubic"),
        np.einsum("hH,wW,HWab->hwab", rows, columns, grid),
        atol=1e-14,
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_answers_in_the_dtype_it_was_given(dtype):
    grid = np.ones((2, 2, 1), dtype)
    assert resample_grid(grid, (3, 3), "bicubic").dtype == dtype


def test_an_unknown_kernel_lists_the_known_ones():
    with pytest.raises(ValueError, match="corner_linear.*Received: 'cubic'"):
        resampling_matrix(2, 3, "cubic")


@pytest.mark.parametrize("target", [0, -1, 2.5, None])
def test_size_must_be_positive_and_whole(target):
    with pytest.raises(ValueError, match="`target` must be a whole number ≥ 1"):
        resampling_matrix(2, target, "bilinear")


@pytest.mark.parametrize("grid", [np.ones(4), np.ones((4, 4), "uint8")])
def test_grid_must_have_two_sides_and_hold_floats(grid):
    with pytest.raises(ValueError, match="`grid` must be an array of floats"):
        resample_grid(grid, (2, 2), "bilinear")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("source", [1, 2, 3, 7, 14])
@pytest.mark.parametrize("target", [1, 2, 4, 8, 14, 28])
def test_spreading_keeps_the_sum(source, target, kernel):
    matrix = spreading_matrix(source, target, kernel)
    assert matrix.shape == (target, source)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-14)
    assert np.abs(matrix).max() <= 1.2


def test_spreading_shares_where_cells_are_divided():
    matrix = spreading_matrix(8, 16, "bilinear")
    expected = resampling_matrix(8, 16, "bilinear") / 2
    np.testing.assert_allclose(matrix, expected, atol=1e-14)


def test_spreading_adds_up_where_cells_are_merged():
    ones = np.ones((4, 6, 1))
    spread = spread_grid(ones, (2, 3), "bilinear")
    np.testing.assert_allclose(spread, 4, atol=1e-14)


def test_spreading_treats_each_side_separately():
    grid = np.random.default_rng(0).normal(size=(4, 6, 2)).astype("float32")
    spread = spread_grid(grid, (7, 3), "bicubic_antialias")
    down, across = (
        spreading_matrix(s, t, "bicubic_antialias") for s, t in ((4, 7), (6, 3))
    )
    expected = np.einsum("ah,bw,hwc->abc", down, across, grid)
    assert spread.dtype == np.float32
    np.testing.assert_allclose(spread, expected, atol=1e-6)


def test_patches_are_resampled_as_in_timm():
    with np.load(PATCHES) as arrays:
        cases = [key.removesuffix("_kernel") for key in arrays if "kernel" in key]
        assert len(cases) == 4
        for case in cases:
            expected = arrays[f"{case}_timm"]
            found = resample_patches(
                arrays[f"{case}_kernel"], expected.shape[:2], "bicubic_antialias"
            )
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_patches_of_the_same_size_do_not_change():
    kernel = np.random.default_rng(0).normal(size=(5, 3, 2, 4))
    np.testing.assert_array_equal(
        resample_patches(kernel, (5, 3), "bicubic_antialias"), kernel
    )


def test_products_of_patches_and_kernels_stay_if_both_grow():
    """Equation 4 of FlexiViT: exact for a larger size; a smaller one by its inverse."""
    rng = np.random.default_rng(0)
    kernel, patch = rng.normal(size=(2, 4, 6, 1))
    larger = resample_patches(kernel, (8, 9), "bicubic_antialias")
    resized = resample_grid(patch, (8, 9), "bicubic_antialias")
    np.testing.assert_allclose((larger * resized).sum(), (kernel * patch).sum())
    down = np.linalg.pinv(resampling_matrix(4, 8, "bicubic_antialias")).T
    np.testing.assert_allclose(
        resample_patches(kernel, (8, 6), "bicubic_antialias")[:, 0, 0],
        down @ kernel[:, 0, 0],
    )
