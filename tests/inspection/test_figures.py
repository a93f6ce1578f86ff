"""Images of any number of channels as pictures."""

import numpy as np
import pytest

from kerasvit.inspection import as_rgb
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is NumPy

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(20, 20, 13)) * np.arange(1, 14)


def test_three_channels_are_stretched_together():
    image = IMAGE[..., :3]
    found = as_rgb(image)
    expected = (image - image.min()) / (image.max() - image.min())
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("channels", "bands", "drawn"),
    [
        (1, None, [0, 0, 0]),
        (2, None, [0, 0, 0]),
        (4, None, [0, 1, 2]),
        (13, (3, 2, 1), [3, 2, 1]),
        (13, [12], [12, 12, 12]),
        (3, (2, 1, 0), [2, 1, 0]),
    ],
)
def test_drawn_channels(channels, bands, drawn):
    image = IMAGE[..., :channels]
    plain = as_rgb(image, bands, stretch=False)
    np.testing.assert_array_equal(plain, image[..., drawn])
    low, high = np.percentile(image[..., drawn], (2, 98), axis=(0, 1))
    found = as_rgb(image, bands)
    np.testing.assert_allclose(found, ((plain - low) / (high - low)).clip(0, 1))


def test_a_bright_pixel_does_not_hide_the_others():
    image = IMAGE.copy()
    image[0, 0] = 1e6
    assert as_rgb(image).std() > 0.2
    np.testing.assert_array_equal(as_rgb(np.ones((2, 2, 13))), 0)


@pytest.mark.parametrize("bands", [(0, 1), (0, 1, 13), (-1, 0, 1), (0.5,), ()])
def test_wrong_bands(bands):
    with pytest.raises(ValueError, match="three channels, or one, from 0 to 12"):
        as_rgb(IMAGE, bands)
