"""The score of heat against masks of objects."""

import numpy as np
import pytest

from kerasvit.inspection import segmentation_score
from tests.once import on_last_backend

pytestmark = on_last_backend


def longhand(heat, mask, mass):
    """IoU for one image: DINO's threshold on sorted, cumulated heat."""
    order = np.argsort(heat.ravel())
    share = np.cumsum(heat.ravel()[order]) / heat.sum()
    kept = np.zeros(heat.size, bool)
    kept[order] = share > 1 - mass
    scale = [m // h for m, h in zip(mask.shape, heat.shape, strict=True)]
    seen = np.kron(kept.reshape(heat.shape), np.ones(scale)).astype(bool)
    return (seen & mask).sum() / (seen | mask).sum()


@pytest.mark.parametrize("mass", [0.3, 0.6, 0.95])
def test_intersection_over_union_of_the_hottest_patches(mass):
    rng = np.random.default_rng(0)
    heat, masks = rng.uniform(size=(3, 2, 4, 6)), rng.uniform(size=(3, 12, 18)) < 0.4
    scores = segmentation_score(heat, masks, mass)
    expected = [[longhand(head, m, mass) for head in h] for h, m in zip(heat, masks)]
    np.testing.assert_allclose(scores, expected)
    np.testing.assert_allclose(
        segmentation_score(heat[:, 1], masks, mass), scores[:, 1]
    )


def test_heat_on_the_object_alone_has_the_score_1():
    mask = np.zeros((1, 8, 8), bool)
    mask[0, 2:6, 4:8] = True
    heat = mask[:, ::2, ::2].astype("float32")
    np.testing.assert_array_equal(segmentation_score(heat, mask, 0.99), [1])


def test_pixels_that_no_whole_patch_covers_belong_to_the_nearest():
    masks = np.zeros((1, 5, 5), bool)
    masks[0, :3, :3] = True  # rows 0, 1 and 2 of 5 begin in the first of two patches
    heat = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_array_equal(segmentation_score(heat, masks), [1])


HEAT, MASK = np.ones((2, 2, 3)), np.ones((2, 4, 6), bool)


@pytest.mark.parametrize(
    ("heat", "masks", "mass", "expected"),
    [
        (
            HEAT,
            MASK[:1],
            0.6,
            r"masks of shape \(1, 4, 6\).* heat of shape \(2, 2, 3\)",
        ),
        (HEAT, MASK.astype(int), 0.6, "must be booleans .*dtype int64"),
        (HEAT, MASK[0], 0.6, r"masks of shape \(4, 6\)"),
        (HEAT, MASK[:, :, :4], 0.6, "proportions.*masks of 4 × 4, heat of 2 × 3"),
        (HEAT, MASK[:, :1, :1], 0.6, "proportions.*masks of 1 × 1, heat of 2 × 3"),
        (HEAT, MASK & False, 0.6, r"True somewhere.*\[0, 1\]"),
        (HEAT * 0, MASK, 0.6, "`heat` must be finite, at least 0, and not 0"),
        (-HEAT, MASK, 0.6, "`heat` must be .*from -1"),
        (HEAT * np.nan, MASK, 0.6, "`heat` must be .*nan"),
        (HEAT, MASK, 0, "`mass` must be .*mass=0"),
        (HEAT, MASK, 1, "`mass` must be .*mass=1"),
    ],
)
def test_heat_and_masks_that_do_not_fit(heat, masks, mass, expected):
    with pytest.raises(ValueError, match=expected):
        segmentation_score(heat, masks, mass)
